from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from paceline.errors import ErrorCode
from paceline_node.observe.exposition import exposition
from paceline_node.observe.metrics import OK, Gauge, Metrics, PartitionSample, Total, code_label

Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def text(metrics: Metrics) -> str:
    return exposition(metrics.collect()).decode()


def series(metrics: Metrics) -> Series:
    found: Series = {}
    for family in text_string_to_metric_families(text(metrics)):
        for sample in family.samples:
            found[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
    return found


def partition(topic: str = "orders", number: int = 0, **changes: object) -> PartitionSample:
    values: dict[str, object] = {
        "log_start_offset": 1,
        "high_watermark": 5,
        "log_end_offset": 7,
        "leader_epoch": 3,
        "leader": 0,
        "is_leader": True,
        "in_sync_replicas": 3,
        "replicas": 3,
        "min_in_sync_replicas": 2,
        "log_bytes": 100,
        "segments": 1,
    }
    return PartitionSample(topic, number, **{**values, **changes})  # type: ignore[arg-type]


def test_requests_are_counted_by_code_and_timed() -> None:
    metrics = Metrics(version="1")
    meter = metrics.requests("v1", "PRODUCE")
    meter.done(OK, 0.0004)
    meter.done(OK, 0.3)
    meter.done(code_label(ErrorCode.NOT_LEADER_OR_FOLLOWER), 99)
    got = series(metrics)
    at = (("api", "PRODUCE"), ("protocol", "v1"))
    assert got["paceline_requests_total", (at[0], ("code", "none"), at[1])] == 2
    code = ("code", "not_leader_or_follower")
    assert got["paceline_requests_total", (at[0], code, at[1])] == 1
    buckets = {
        dict(labels)["le"]: value
        for (name, labels), value in got.items()
        if name == "paceline_request_duration_seconds_bucket"
    }
    assert buckets["0.00025"] == 0
    assert buckets["0.0005"] == 1
    assert buckets["0.5"] == 2
    assert buckets["10.0"] == 2
    assert buckets["+Inf"] == 3
    assert got["paceline_request_duration_seconds_count", at] == 3
    assert abs(got["paceline_request_duration_seconds_sum", at] - 99.3004) < 1e-9


def test_states_are_read_at_scrape_and_deleted_topics_vanish() -> None:
    metrics = Metrics(version="1")
    partitions = [
        partition(replica_lag=((1, 2), (2, 0))),
        partition(number=1, in_sync_replicas=1, leader=0),
        partition(number=2, is_leader=False, leader=-1, in_sync_replicas=0),
        partition(number=3, is_leader=False, leader=2, in_sync_replicas=1),
    ]
    metrics.provide_partitions(lambda: partitions)
    metrics.provide(Gauge.CONNECTIONS_ACTIVE, lambda: [(("v1",), 4)])
    metrics.provide(Gauge.CONNECTIONS_ACTIVE, lambda: [(("native",), 2)])
    got = series(metrics)
    assert got["paceline_under_replicated_partitions", ()] == 1
    assert got["paceline_under_min_isr_partitions", ()] == 1
    assert got["paceline_leaderless_partitions", ()] == 1
    orders0 = (("partition", "0"), ("topic", "orders"))
    assert got["paceline_partition_high_watermark", orders0] == 5
    assert got["paceline_partition_is_leader", orders0] == 1
    lag = (("partition", "0"), ("replica", "1"), ("topic", "orders"))
    assert got["paceline_replica_lag_records", lag] == 2
    assert got["paceline_connections_active", (("protocol", "v1"),)] == 4
    assert got["paceline_connections_active", (("protocol", "native"),)] == 2
    metrics.records_appended.of("orders").add(10)
    assert series(metrics)["paceline_records_appended_total", (("topic", "orders"),)] == 10
    partitions.clear()
    metrics.forget_topic("orders")
    assert "orders" not in text(metrics)


def test_single_partitions_can_be_left_out() -> None:
    metrics = Metrics(version="1", per_partition=False)
    metrics.provide_partitions(lambda: [partition(in_sync_replicas=1)])
    got = series(metrics)
    assert got["paceline_under_replicated_partitions", ()] == 1
    assert not any(name.startswith("paceline_partition_") for name, _ in got)


def test_two_nodes_of_one_process_do_not_share_numbers() -> None:
    one, two = Metrics(version="1"), Metrics(version="1")
    one.isr_changes.of("shrink").add()
    assert ("paceline_isr_changes_total", (("change", "shrink"),)) in series(one)
    assert ("paceline_isr_changes_total", (("change", "shrink"),)) not in series(two)
    assert series(two)["paceline_build_info", (("version", "1"),)] == 1


def test_kinds_of_request_that_clients_invent_share_one_series() -> None:
    metrics = Metrics(version="1")
    meters = metrics.requests_by("native", {3: "produce"})
    meters[3].done(OK, 0.1)
    for invented in range(100, 200):
        meters[invented].done(code_label(ErrorCode.INVALID_REQUEST), 0.1)
    assert list(meters) == [3]
    counts = {
        tuple(dict(labels)[key] for key in ("api", "code")): value
        for (name, labels), value in series(metrics).items()
        if name == "paceline_requests_total"
    }
    assert counts == {("produce", "none"): 1, ("unknown", "invalid_request"): 100}
    assert code_label(31_000) == "unknown"


def test_counts_kept_elsewhere_are_counters_and_add_up_over_their_sources() -> None:
    metrics = Metrics(version="1")
    metrics.provide(Total.LEADER_ELECTIONS, lambda: [(("unclean",), 2)])
    metrics.provide(Total.LEADER_ELECTIONS, lambda: [(("preferred",), 5)])
    got = series(metrics)
    assert got["paceline_leader_elections_total", (("reason", "unclean"),)] == 2
    assert got["paceline_leader_elections_total", (("reason", "preferred"),)] == 5


def test_groups_of_an_fsync() -> None:
    metrics = Metrics(version="1")
    metrics.synced(0.002, 3, 40)
    got = series(metrics)
    assert got["paceline_fsync_duration_seconds_count", ()] == 1
    assert got["paceline_fsync_group_logs_bucket", (("le", "2.0"),)] == 0
    assert got["paceline_fsync_group_logs_bucket", (("le", "4.0"),)] == 1
    assert got["paceline_fsync_group_records_sum", ()] == 40
