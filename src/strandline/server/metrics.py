"""Metrics of the service's HTTP requests."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest


class HttpMetrics:
    """Counters of one service process. Labels are names of routes, never paths that clients send."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.requests = Counter(
            "strandline_http_requests",
            "Requests to this service process, by method, route and status",
            ["method", "route", "status"],
            registry=self._registry,
        )
        self.seconds = Histogram(
            "strandline_http_request_seconds",
            "Duration of requests to this service process, by route",
            ["route"],
            registry=self._registry,
        )
        self.running = Gauge(
            "strandline_http_requests_running",
            "Requests that this service process answers now",
            registry=self._registry,
        )
        self.event_streams = Gauge(
            "strandline_http_event_streams",
            "Open streams of operation events of this service process",
            registry=self._registry,
        )
        self.failed_logins = Counter(
            "strandline_http_failed_logins",
            "Requests to this service process with a wrong token or session",
            registry=self._registry,
        )
        self.housekeeping = Counter(
            "strandline_housekeeping_rounds",
            "Rounds of housekeeping of this service process, by result",
            ["result"],
            registry=self._registry,
        )

    def render(self) -> str:
        """Return the metrics in the Prometheus text format."""
        return generate_latest(self._registry).decode()
