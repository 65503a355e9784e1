package checker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	redisv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/health_checkers/redis/v3"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// quietRedis keeps the library from writing to standard error whenever an
// endpoint is down, which is nothing new to a health checker.
var quietRedis = sync.OnceFunc(logging.Disable)

// redisCheck is what all Redis probes of a check share.
type redisCheck struct {
	link link
	key  string // empty = PING
}

func newRedis(m *redisv3.Redis, l link) (func(Target) (Prober, error), error) {
	if m.GetAwsIam() != nil {
		return nil, errors.New("redis: aws_iam is not known here")
	}
	if len(m.GetKey()) > mostPayload {
		return nil, fmt.Errorf("redis: key: want at most %d bytes", mostPayload)
	}
	quietRedis()
	c := &redisCheck{link: l, key: m.GetKey()}
	return func(t Target) (Prober, error) { return &redisProber{check: c, target: t}, nil }, nil
}

// redisProber probes one endpoint with PING or EXISTS.
type redisProber struct {
	check  *redisCheck
	target Target
	client *redis.Client
	giveUp context.CancelFunc // ends what the client dials
}

// Probe asks. A key that exists means that the instance is taken out of
// service, as in Envoy.
func (p *redisProber) Probe(ctx context.Context) (Outcome, error) {
	reused := p.client != nil
	outcome, err := p.ask(ctx)
	if outcome == Broken && reused {
		// The server may have closed the connection while it was idle.
		p.Close()
		outcome, err = p.ask(ctx)
	}
	if !p.check.link.reuse || outcome.lostConnection() {
		p.Close()
	}
	return outcome, err
}

func (p *redisProber) ask(ctx context.Context) (Outcome, error) {
	if p.client == nil {
		p.client = p.connect()
	}
	var exists int64
	var err error
	if p.check.key == "" {
		err = p.client.Ping(ctx).Err()
	} else {
		exists, err = p.client.Exists(ctx, p.check.key).Result()
	}
	var said redis.Error // an answer that is an error
	switch {
	case errors.As(err, &said):
		return Failed, err
	case err != nil:
		return lost(ctx, err)
	case exists > 0:
		return Failed, fmt.Errorf("the key %q exists", short(p.check.key))
	}
	return Passed, nil
}

// connect makes a client of one connection, without retries of its own. It dials
// in the background, in a context of its own, which ends with the client here: or
// where nobody answers, dials would pile up.
func (p *redisProber) connect() *redis.Client {
	dialing, giveUp := context.WithCancel(context.Background())
	p.giveUp = giveUp
	return redis.NewClient(&redis.Options{
		Addr: p.target.Address,
		Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			defer context.AfterFunc(dialing, cancel)()
			return p.check.link.open(ctx, p.target.Network, p.target.Address)
		},
		Protocol: 2, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		MaxRetries:               -1, DialerRetries: 1,
		ContextTimeoutEnabled: true, DialTimeout: mostTimeout, ReadTimeout: -1, WriteTimeout: -1, // the probe's own counts
		// One connection is used. A pool of one would begin to dial in the
		// background at the first error; this client is closed by then.
		PoolSize: 2, PipelinePoolSize: -1, ConnMaxIdleTime: -1,
		ReadBufferSize: 1 << 10, WriteBufferSize: 1 << 10,
	})
}

// Close lets go of the connection.
func (p *redisProber) Close() {
	if p.client != nil {
		p.giveUp()
		_ = p.client.Close() // fails only when closed before
		p.client = nil
	}
}
