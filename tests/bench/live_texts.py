"""What lives say while they are measured."""

SENTENCES = (
    "Hello there.",
    "Good morning, and welcome.",
    "How are you today?",
    "The train leaves at ten.",
    "Please take a seat.",
    "That is a good question.",
    "It will rain in the afternoon.",
    "Let me think about that for a moment.",
    "We have three rooms left.",
    "Your order is on its way.",
    "Turn left behind the old bridge.",
    "I am afraid that is not possible.",
    "The museum opens at nine.",
    "Could you say that again?",
    "Everything is ready.",
    "Coffee is served in the garden.",
    "The lake is frozen in winter.",
    "Mind the step.",
    "She wrote the letter by hand.",
    "Thank you, and see you soon.",
    "No, not yet.",
    "The second door on the right.",
)

LONG_SENTENCE = (
    "Along the river there are many small villages where people grow apples and pears and plums "
    "and sell them on the market every morning from early summer until late autumn."
)

_PARAGRAPH = (
    "The quick brown fox jumps over the lazy dog. She sells sea shells by the sea shore. "
    "On a clear day you can see the mountains from here, and sometimes even the lake. "
    "Nobody knows who built the tower, but everyone in the valley can tell a story about it. "
    "Bring a warm coat, because evenings are cool up there. "
)

SPEECH = _PARAGRAPH * 4
"""More than a minute of it."""
