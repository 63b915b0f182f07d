"""FoundationDB's tuple encoding, for the three types that keys here are made of.

Packed tuples order bytewise as the tuples order: element by element, bytes before text before
integers. The encoding is the published one of the FoundationDB bindings, so that any of their tools
can read these keys; integers are those of at most 8 bytes.

Source: the "Tuple layer" design document of FoundationDB.

PURE.
"""

from collections.abc import Iterable

Element = str | bytes | int

_BYTES = 0x01
_TEXT = 0x02
_INT_ZERO = 0x14
_INT_BYTES_MAX = 8
# The bindings write larger ones, this one's successor included, in another form.
INT_MAX = (1 << 8 * _INT_BYTES_MAX) - 2


class BadTuple(ValueError):
    """The bytes are no tuple of text, bytes and integers, or an integer is too large to pack."""


def pack(elements: Iterable[Element]) -> bytes:
    """The key of a tuple. Raises BadTuple for an integer beyond INT_MAX."""
    return b"".join([pack_element(element) for element in elements])


def pack_element(element: Element) -> bytes:
    """What `pack` appends for one element."""
    if isinstance(element, str):
        return pack_text(element)
    if isinstance(element, bytes):
        return b"\x01" + element.replace(b"\x00", b"\x00\xff") + b"\x00"
    return pack_int(element)


def pack_text(text: str) -> bytes:
    """One text element; raises UnicodeEncodeError for a lone surrogate."""
    raw = text.encode()
    if b"\x00" in raw:
        raw = raw.replace(b"\x00", b"\x00\xff")
    return b"\x02" + raw + b"\x00"


def pack_int(number: int) -> bytes:
    """One integer element, negative ones before zero before positive ones."""
    if number == 0:
        return b"\x14"
    size = (number.bit_length() + 7) // 8
    if not -INT_MAX <= number <= INT_MAX:
        raise BadTuple(f"{number} is beyond {INT_MAX}")
    if number > 0:
        return bytes((_INT_ZERO + size,)) + number.to_bytes(size, "big")
    # One's complement, so that the larger magnitude sorts first.
    return bytes((_INT_ZERO - size,)) + (number + (1 << 8 * size) - 1).to_bytes(size, "big")


def unpack(key: bytes) -> tuple[Element, ...]:
    """The tuple of a key. Raises BadTuple."""
    elements: list[Element] = []
    at = 0
    while at < len(key):
        element, at = _unpack_element(key, at)
        elements.append(element)
    return tuple(elements)


def _unpack_element(key: bytes, at: int) -> tuple[Element, int]:
    code = key[at]
    if code in (_BYTES, _TEXT):
        end = _end_of_string(key, at + 1)
        raw = key[at + 1 : end].replace(b"\x00\xff", b"\x00")
        if code == _BYTES:
            return raw, end + 1
        try:
            return raw.decode(), end + 1
        except UnicodeDecodeError as error:
            raise BadTuple(f"text at byte {at} is not UTF-8") from error
    size = abs(code - _INT_ZERO)
    if size > _INT_BYTES_MAX:
        raise BadTuple(f"byte {at} holds the unknown type code {code:#04x}")
    end = at + 1 + size
    if end > len(key):
        raise BadTuple(f"the integer at byte {at} is cut off")
    number = int.from_bytes(key[at + 1 : end], "big")
    return (number if code >= _INT_ZERO else number - (1 << 8 * size) + 1), end


def _end_of_string(key: bytes, at: int) -> int:
    """Where the zero byte stands that ends a string and is not followed by 0xFF."""
    while True:
        end = key.find(b"\x00", at)
        if end < 0:
            raise BadTuple("a string is cut off")
        if key[end + 1 : end + 2] != b"\xff":
            return end
        at = end + 2


def prefix_range(prefix: bytes) -> tuple[bytes, bytes]:
    """(begin, end) of every key that continues the packed tuple `prefix`."""
    return prefix + b"\x00", prefix + b"\xff"
