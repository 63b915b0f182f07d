"""Offers that may be answered, and what is said of those that may not."""

import pytest

from rtc_output.offer import OFFER_BYTES_MAX, OfferRefusal, OfferRefused, check_offer

SESSION = "v=0\r\no=- 1 1 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\na=group:BUNDLE 0 1\r\n"
SECRETS = "a=ice-ufrag:abcd\r\na=ice-pwd:0123456789012345678901\r\na=fingerprint:sha-256 AA:BB\r\n"


def media(kind: str, mid: int, direction: str = "recvonly", extra: str = "") -> str:
    return (
        f"m={kind} 9 UDP/TLS/RTP/SAVPF 96\r\nc=IN IP4 0.0.0.0\r\na=mid:{mid}\r\n"
        f"a={direction}\r\na=rtcp-mux\r\n{SECRETS}{extra}"
    )


GOOD = SESSION + media("audio", 0) + media("video", 1)


def test_a_good_offer_is_kept_as_it_is() -> None:
    offer = check_offer(GOOD)
    assert offer.kinds == ("audio", "video")
    assert offer.sdp == GOOD
    assert check_offer(GOOD.replace("\r\n", "\n")).sdp == GOOD


def test_candidates_that_cannot_be_used_are_taken_out() -> None:
    noise = (
        "a=candidate:1 1 udp 1 6b1e7b1c.local 5000 typ host\r\n"
        "a=candidate:2 1 tcp 1 192.0.2.1 9 typ host tcptype active\r\n"
        "a=end-of-candidates\r\n"
    )
    kept = "a=candidate:3 1 udp 1 192.0.2.1 5000 typ host\r\n"
    offer = check_offer(GOOD + noise + kept)
    assert offer.sdp == GOOD + kept


@pytest.mark.parametrize(
    "sdp",
    [
        "",
        "hello",
        "v=1\r\n",
        SESSION,
        SESSION + "m=audio\r\n",
        GOOD + "nonsense\r\n",
        GOOD.replace("a=ice-pwd:0123456789012345678901\r\n", ""),
        GOOD.replace("a=fingerprint:sha-256 AA:BB\r\n", ""),
        GOOD.replace("a=mid:1\r\n", ""),
        GOOD + "a=x:" + "y" * OFFER_BYTES_MAX + "\r\n",
        '{"type": "offer"}',
    ],
)
def test_what_is_not_an_offer_is_malformed(sdp: str) -> None:
    with pytest.raises(OfferRefused) as refused:
        check_offer(sdp)
    assert refused.value.reason is OfferRefusal.MALFORMED
    assert refused.value.reason.http_status == 400
    assert refused.value.detail


@pytest.mark.parametrize(
    "sdp",
    [
        SESSION + media("audio", 0, "sendrecv") + media("video", 1),
        SESSION + media("audio", 0) + media("video", 1, "sendonly"),
        SESSION + media("audio", 0) + media("video", 1, "inactive"),
        SESSION + media("audio", 0) + media("audio", 1),
        GOOD + "m=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\n",
        GOOD.replace("a=rtcp-mux\r\n", ""),
        GOOD.replace("a=group:BUNDLE 0 1\r\n", ""),
        GOOD.replace("m=video 9", "m=video 0"),
    ],
)
def test_what_we_cannot_serve_is_not_acceptable(sdp: str) -> None:
    with pytest.raises(OfferRefused) as refused:
        check_offer(sdp)
    assert refused.value.reason is OfferRefusal.NOT_ACCEPTABLE
    assert refused.value.reason.http_status == 406


def test_every_refusal_has_a_status() -> None:
    assert {reason.http_status for reason in OfferRefusal} == {400, 406, 409, 503}
