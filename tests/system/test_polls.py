"""Tests the polls for all samples of a client, which SDKs from 0.26.2 on use."""
from tuft_server import MODEL


def test_one_poll_is_for_all_samples_of_a_client(raw, raw_bob):
    session = raw.sampler(base_model=MODEL).json["sampling_session_id"]

    def poll(after, client=raw, clone=0, **fields):
        return client.post("retrieve_futures", {
            "target": {"type": "sampling_session", "sampling_session_id": session, "cloned_sampler_id": clone},
            "prev_cursor": after, "retrieved_request_ids": [], **fields})

    empty = poll(0, timeout=0.0)
    assert (empty.status, empty.json) == (200, {"completions": [], "cursor": 0})
    counter = raw.post("join_sampling_session", {"sampling_session_id": session, "type": "join_sampling_session"}).json
    assert counter["type"] == "join_sampling_session"
    copy = counter["client_counter"]
    ids = [raw.sample(session, seq_id).json["request_id"] for seq_id in (0, 1, copy * 10**9)]
    found, cursor = [], 0
    while len(found) < 2:
        answer = poll(cursor).json
        found += [one["request_id"] for one in answer["completions"]]
        assert all(one["state"] == "finished" and one["response_payload_uncompressed_size"] > 0
                   for one in answer["completions"])
        cursor = answer["cursor"]
    assert set(found) == set(ids[:2])
    assert [one["request_id"] for one in poll(0, clone=copy).json["completions"]] == ids[2:]
    assert poll(cursor, timeout=0.0, retrieved_request_ids=ids).json == {"completions": [], "cursor": cursor}
    assert poll(0, timeout=0.0).json["completions"] == [], "what was confirmed does not come again"
    assert raw.retrieve(ids[0]).status == 200
    assert poll(0, client=raw_bob, timeout=0.0).status == 404
