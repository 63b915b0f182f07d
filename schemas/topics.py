"""The names of the Kafka topics and the partition counts they are made with.

PURE.
"""

TEXT_TOPIC = "dhsched.text"
EVENTS_TOPIC = "dhsched.events"
DEAD_LETTER_TOPIC = "dhsched.dead-letter"

# A live is bound to one text partition for ever (the key decides), so the count is chosen once.
TEXT_PARTITIONS = 12
EVENTS_PARTITIONS = 6
DEAD_LETTER_PARTITIONS = 1
