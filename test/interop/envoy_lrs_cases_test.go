package interop

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	testpb "google.golang.org/grpc/interop/grpc_testing"
)

// envoyCount is what Envoy's load reports say of a service, added up.
type envoyCount struct {
	issued, success, errors uint64
	dropped                 uint64 // total_dropped_requests
	category                uint64 // dropped_requests of the category drop_overload
}

// countCase is a kind of request, what Envoy counts of it, and what Isobar
// makes of the counts.
type countCase struct {
	name     string // of the service, and of the first part of the path
	about    string // for the page
	requests int
	send     func(ctx context.Context, l *lrsSite, name string, i int)

	query   string // of the path
	route   string // YAML: further fields of the route's action
	cluster string // YAML: further fields of the cluster, in place of its large limits where it has limits
	proto   string // "grpc": the cluster speaks HTTP/2
	backend string // "closed", "full" or "code"; "" is the web server

	want       envoyCount
	errorsUpTo uint64             // for errors that depend on time: from want.errors to this
	oldest     func(*envoyCount)  // how the oldest version differs
	isobar     func(*isobarCount) // how Isobar differs from the usual
}

// isobarCount is what Isobar takes the requests of one case for: numbers of
// requests, as rates of so many a second.
type isobarCount struct {
	demand, landed, errors, dropped float64
}

// countCases is the table: 20 requests each, where nothing else is said.
// Attempts of retries and hedges count each; docs/reference/load-reports.md
// shows it to users.
var countCases = []countCase{
	{name: "answered", about: "answered with 2xx, 3xx or 4xx, also 429", query: "status=%[1]d", send: get, want: envoyCount{issued: 20, success: 20}},
	{name: "failed", about: "answered with 5xx", query: "status=%[2]d", send: get, want: envoyCount{issued: 20, errors: 20}},
	{name: "timeout_head", about: "the route's timeout passes before the headers", query: "wait=2s", route: "timeout: 0.2s", send: get, want: envoyCount{issued: 20, errors: 20}},
	{name: "reset_head", about: "the endpoint resets before the headers", query: "abort=head", send: get, want: envoyCount{issued: 20, errors: 20}},
	{name: "timeout_body", about: "the route's timeout passes after the headers", query: "hang=body", route: "timeout: 0.3s", send: get, want: envoyCount{issued: 20, success: 20}},
	{name: "reset_body", about: "the endpoint resets in the body", query: "abort=body", send: get, want: envoyCount{issued: 20, success: 20}},
	{name: "left_body", about: "the client leaves in the body", query: "hang=body", send: leaveInBody, want: envoyCount{issued: 20, success: 20}},
	{name: "left_head", about: "the client leaves before the headers", query: "wait=5s", send: leave, want: envoyCount{issued: 20}},
	{
		name: "retried_timeout", about: "timeout of each attempt, 2 retries", query: "wait=2s", route: `retry_policy: {retry_on: "5xx", num_retries: 2, per_try_timeout: 0.15s}`,
		send: get, want: envoyCount{issued: 60, errors: 60},
	},
	{
		name: "retried_once", about: "500, then 200 on the retry", query: "first=500&id=%[3]d", route: `retry_policy: {retry_on: "5xx", num_retries: 2}`,
		send: get, want: envoyCount{issued: 40, success: 20, errors: 20},
	},
	{
		// The loser of the hedge is neither a success nor an error.
		name: "hedged", about: "hedged: the slower attempt counts as issued only", query: "wait=500ms",
		route: `retry_policy: {retry_on: "5xx", num_retries: 1, per_try_timeout: 0.2s}, hedge_policy: {hedge_on_per_try_timeout: true}`,
		send:  get, want: envoyCount{issued: 40, success: 20},
	},
	{
		name: "refused", about: "connection refused", backend: "closed", send: get, want: envoyCount{errors: 20},
		oldest: func(c *envoyCount) { c.errors = 0 }, // not reported at all
	},
	{
		name: "connect_timeout", about: "connect timeout, 4 requests", requests: 4, backend: "full", cluster: "connect_timeout: 0.3s", send: get, want: envoyCount{errors: 4},
		oldest: func(c *envoyCount) { c.errors = 0 },
	},
	{name: "drop_overload", about: "all dropped by the assignment", send: get, want: envoyCount{dropped: 20, category: 20}},
	{
		name: "max_requests", about: "`max_requests: 5` of the circuit breaker, 20 at once", query: "wait=400ms", cluster: "circuit_breakers: {thresholds: [{max_requests: 5}]}", send: get,
		want:   envoyCount{issued: 5, success: 5, errors: 15, dropped: 15},
		isobar: func(c *isobarCount) { c.demand, c.dropped = 20, 0 }, // the same 15 are errors and drops: they count once
	},
	{
		name: "max_pending", about: "`max_connections: 1`, `max_pending_requests: 1`, 20 at once", query: "wait=300ms", cluster: "circuit_breakers: {thresholds: [{max_connections: 1, max_pending_requests: 1}]}",
		send: getInTurn, want: envoyCount{issued: 2, success: 2, dropped: 18},
	},
	{name: "maintenance", about: "maintenance mode (runtime)", send: get, want: envoyCount{dropped: 20}},
	{name: "no_hosts", about: "the assignment has no endpoints", send: get},
	{name: "none_healthy", about: "no endpoint is healthy, and panic is off", cluster: "common_lb_config: {healthy_panic_threshold: {value: 0}, locality_weighted_lb_config: {}}", send: get},
	{name: "grpc_answered", about: "gRPC OK, NOT_FOUND, RESOURCE_EXHAUSTED", proto: "grpc", backend: "code", query: "OK NOT_FOUND RESOURCE_EXHAUSTED", send: call, want: envoyCount{issued: 20, success: 20}},
	{
		name: "grpc_failed", about: "gRPC UNAVAILABLE, INTERNAL, UNKNOWN, DEADLINE_EXCEEDED, also after a message", proto: "grpc", backend: "code", query: "UNAVAILABLE INTERNAL UNKNOWN DEADLINE_EXCEEDED late_UNAVAILABLE late_INTERNAL",
		send: call, want: envoyCount{issued: 20, errors: 20},
	},
	{name: "grpc_deadline", about: "gRPC, the client's deadline passes", proto: "grpc", backend: "code", query: "HANG", send: callUntil, want: envoyCount{issued: 20}, errorsUpTo: 14},
	{name: "grpc_canceled", about: "gRPC, the client cancels", proto: "grpc", backend: "code", query: "HANG", send: callAndCancel, want: envoyCount{issued: 20}},
	{name: "tcp", about: "TCP proxy, 5 connections", requests: 5, send: connect, want: envoyCount{issued: 5}},
	{name: "mirroring", about: "mirrored: the first cluster", route: "request_mirror_policies: [{cluster: mirrored}]", send: get, want: envoyCount{issued: 20, success: 20}},
	{name: "mirrored", about: "mirrored: the cluster that gets the copies", send: nothing, want: envoyCount{issued: 20, success: 20}},
	{
		name: "checked", about: "only Envoy's own health checks", send: nothing,
		cluster: "health_checks: [{timeout: 1s, interval: 0.1s, unhealthy_threshold: 1, healthy_threshold: 1, http_health_check: {path: /checked}}]",
	},
}

// row is the case on the page.
func (c *countCase) row() string {
	failed := fmt.Sprint(c.want.errors)
	if c.errorsUpTo > 0 {
		failed += fmt.Sprintf(" to %d", c.errorsUpTo)
	}
	i := c.isobarWant()
	return fmt.Sprintf("| %s | %d | %d | %s | %d | %.0f | %.0f | %.0f | %.0f |", c.about,
		c.want.issued, c.want.success, failed, c.want.dropped, i.demand, i.landed, i.errors, i.dropped)
}

func (c *countCase) number() int {
	if c.requests > 0 {
		return c.requests
	}
	return 20
}

// path is the path of the i-th request.
func (c *countCase) path(i, id int) string {
	if c.proto == "grpc" {
		methods := strings.Fields(c.query)
		return c.name + "/" + methods[i%len(methods)]
	}
	good := []int{200, 204, 301, 404, 429}
	bad := []int{500, 502, 503, 504}
	query := c.query
	for verb, v := range map[string]int{"%[1]d": good[i%len(good)], "%[2]d": bad[i%len(bad)], "%[3]d": id} {
		query = strings.ReplaceAll(query, verb, fmt.Sprint(v))
	}
	return c.name + "/?" + query
}

// demands sends the requests of all cases once a second, until Isobar says of
// get makes an HTTP request and reads its answer to the end.
func get(ctx context.Context, l *lrsSite, path string, _ int) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+l.http+"/"+path, http.NoBody)
	if err != nil {
		panic(err) // a path of ours
	}
	if resp, err := l.client.Do(req); err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
}

// getInTurn is get with time for the first request to get its connection, and
// for the second one to wait for it.
func getInTurn(ctx context.Context, l *lrsSite, path string, i int) {
	pause(ctx, time.Duration(min(i, 2))*100*time.Millisecond)
	get(ctx, l, path, i)
}

// leaveAfter is when clients leave: long after a request has reached the backend,
// also on a busy machine.
const leaveAfter = time.Second

// leave is get by a client that leaves before it has headers.
func leave(ctx context.Context, l *lrsSite, path string, i int) {
	ctx, cancel := context.WithTimeout(ctx, leaveAfter)
	defer cancel()
	get(ctx, l, path, i)
}

// leaveInBody is get by a client that leaves as soon as it has headers.
func leaveInBody(ctx context.Context, l *lrsSite, path string, _ int) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+l.http+"/"+path, http.NoBody)
	if err != nil {
		panic(err) // a path of ours
	}
	if resp, err := l.client.Do(req); err == nil {
		cancel()
		_ = resp.Body.Close()
	}
}

// call makes a gRPC call.
func call(ctx context.Context, l *lrsSite, method string, _ int) {
	_ = l.calls.Invoke(ctx, "/"+method, &testpb.Empty{}, &testpb.Empty{})
}

// callUntil is call with a deadline.
func callUntil(ctx context.Context, l *lrsSite, method string, i int) {
	ctx, cancel := context.WithTimeout(ctx, leaveAfter)
	defer cancel()
	call(ctx, l, method, i)
}

// callAndCancel is call by a client that cancels.
func callAndCancel(ctx context.Context, l *lrsSite, method string, i int) {
	ctx, cancel := context.WithCancel(ctx)
	timer := time.AfterFunc(leaveAfter, cancel)
	defer timer.Stop()
	defer cancel()
	call(ctx, l, method, i)
}

// connect makes a connection through the TCP proxy and sends a request by it.
func connect(ctx context.Context, l *lrsSite, _ string, _ int) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", l.tcp)
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(2 * time.Second))
	_, _ = io.WriteString(conn, "GET / HTTP/1.0\r\n\r\n")
	_, _ = io.Copy(io.Discard, conn)
}

// nothing is for services that get their requests otherwise.
func nothing(context.Context, *lrsSite, string, int) {}
