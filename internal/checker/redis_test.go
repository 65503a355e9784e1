package checker_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	redisv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/health_checkers/redis/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/isobar-xds/isobar/internal/checker"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

func overRedis(t *testing.T, key string) *corev3.HealthCheck {
	t.Helper()
	config, err := anypb.New(&redisv3.Redis{Key: key})
	if err != nil {
		t.Fatal(err)
	}
	return check(func(hc *corev3.HealthCheck) {
		hc.HealthChecker = &corev3.HealthCheck_CustomHealthCheck_{CustomHealthCheck: &corev3.HealthCheck_CustomHealthCheck{
			Name:       "envoy.health_checkers.redis",
			ConfigType: &corev3.HealthCheck_CustomHealthCheck_TypedConfig{TypedConfig: config},
		}}
	})
}

func TestRedis(t *testing.T) {
	server := testhelp.NewRedis(t)
	address := server.Address
	hangs, none := listen(t, "tcp", "127.0.0.1:0", hang), testhelp.Refused(t)
	s := start(t).stream()
	s.specify(t, spec(
		cluster("ping", overRedis(t, ""), address, hangs, none),
		cluster("key", overRedis(t, "maintenance"), address),
	))
	s.until(t, "ping", address, healthy)
	s.until(t, "ping", hangs, timeout)
	s.until(t, "ping", none, unhealthy)
	s.until(t, "key", address, healthy)

	server.Do(t, "SET", "maintenance", "yes")
	s.until(t, "key", address, unhealthy)
	s.until(t, "ping", address, healthy)
	server.Do(t, "DEL", "maintenance")
	s.until(t, "key", address, healthy)
	server.Kill()
	s.until(t, "ping", address, unhealthy)
}

// TestRedisDialsDoNotPileUp: where nobody answers, a probe that has timed out
// dials no more.
func TestRedisDialsDoNotPileUp(t *testing.T) {
	var dialing, dialed atomic.Int32
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		dialed.Add(1)
		dialing.Add(1)
		defer dialing.Add(-1)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	s := start(t, func(o *checker.Options) { o.Dial = dial }).stream()
	hc := overRedis(t, "")
	hc.Timeout = durationpb.New(10 * time.Millisecond)
	s.specify(t, spec(cluster("ping", hc, "127.0.0.1:6379")))
	s.until(t, "ping", "127.0.0.1:6379", timeout)
	for dialed.Load() < 20 {
		s.next(t)
	}
	testhelp.Eventually(t, "all dials but that of the present probe end", func() bool { return dialing.Load() <= 1 })
}
