package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/xds"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/isobar-xds/isobar"
)

// ClientOptions says who a client is.
type ClientOptions struct {
	ID       string // node.id
	Cluster  string // node.cluster
	Locality isobar.Locality
	Server   string // address of the management server
	Service  string // what it calls: xds:///Service
	// RTT is the round-trip time to an address, nil = none.
	RTT func(address string) time.Duration
}

// Client is a real grpc-go xDS client with a bootstrap, and so a node and a
// locality, of its own. All balancing is grpc-go's.
type Client struct {
	opts ClientOptions
	conn *grpc.ClientConn
}

// NewClient makes a client; it connects with its first call.
func NewClient(opts ClientOptions) (*Client, error) {
	bootstrap, err := bootstrapJSON(&opts)
	if err != nil {
		return nil, err
	}
	resolver, err := xds.NewXDSResolverWithConfigForTesting(bootstrap)
	if err != nil {
		return nil, fmt.Errorf("client %s: %w", opts.ID, err)
	}
	options := []grpc.DialOption{
		grpc.WithResolvers(resolver),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
	}
	if opts.RTT != nil {
		options = append(options, grpc.WithContextDialer(DistantDialer(TCP, opts.RTT)))
	}
	conn, err := grpc.NewClient("xds:///"+opts.Service, options...)
	if err != nil {
		return nil, fmt.Errorf("client %s: %w", opts.ID, err)
	}
	return &Client{opts: opts, conn: conn}, nil
}

// bootstrapJSON is the bootstrap file of a client, as isobar's users write it.
func bootstrapJSON(opts *ClientOptions) ([]byte, error) {
	b, err := json.Marshal(map[string]any{
		"xds_servers": []any{map[string]any{
			"server_uri":      opts.Server,
			"channel_creds":   []any{map[string]any{"type": "insecure"}},
			"server_features": []string{"xds_v3"},
		}},
		"node": map[string]any{
			"id": opts.ID, "cluster": opts.Cluster,
			"locality": map[string]string{
				"region": opts.Locality.Region, "zone": opts.Locality.Zone, "sub_zone": opts.Locality.SubZone,
			},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("client %s: %w", opts.ID, err)
	}
	return b, nil
}

// Locality is where the client stands.
func (c *Client) Locality() isobar.Locality { return c.opts.Locality }

// Ready sends calls until one is answered, or the context ends. A call that
// began before the management server could be reached fails even if it waits:
// grpc-go routed it before it knew any routes.
func (c *Client) Ready(ctx context.Context) error {
	for {
		_, err := c.call(ctx, grpc.WaitForReady(true))
		if err == nil {
			return nil
		}
		if waitUntil(ctx, time.Now().Add(readyPause)) != nil {
			return fmt.Errorf("client %s: %w", c.opts.ID, err)
		}
	}
}

// readyPause is between the calls of [Client.Ready].
const readyPause = 50 * time.Millisecond

// Call sends one request and tells which address answered it; the address is
// empty when none was reached.
func (c *Client) Call(ctx context.Context) (address string, err error) { return c.call(ctx) }

func (c *Client) call(ctx context.Context, options ...grpc.CallOption) (string, error) {
	var p peer.Peer
	err := c.conn.Invoke(ctx, serveMethod, new(emptypb.Empty), new(emptypb.Empty), append(options, grpc.Peer(&p))...)
	if p.Addr == nil {
		return "", err
	}
	return p.Addr.String(), err
}

// Close ends the client and its streams to the management server.
func (c *Client) Close() error { return c.conn.Close() }

// Poisson sends requests in an open loop: they come at random with a mean
// rate, whether the earlier ones are answered or not.
type Poisson struct {
	// Rate is the mean rate wanted now, requests/s. It is asked again for every
	// request, and every 50 ms while it is 0.
	Rate func(now time.Time) float64
	// Seed makes the arrivals of two runs the same.
	Seed uint64
	// MaxOpen bounds the requests under way; 0 = 1024.
	MaxOpen int
	// MaxLate bounds how much later than due a request is sent; 0 = without a bound. Without
	// it, a process with too little processor time never catches up: it goes on sending
	// requests whose deadlines have passed.
	MaxLate time.Duration
	// Send sends one request, due at a moment that may have just passed.
	Send func(ctx context.Context, due time.Time)
	// Refuse is called for a request that is not sent, with the reason.
	Refuse func(due time.Time, why string)
}

const (
	defaultMaxOpen = 1024
	idlePoll       = 50 * time.Millisecond
)

// Run sends until the context ends, and returns when all is answered. The
// requests under way are not cancelled by the context's end.
func (p *Poisson) Run(ctx context.Context) {
	rng := rand.New(rand.NewPCG(p.Seed, 1)) //nolint:gosec // arrivals, no secrets
	maxOpen := p.MaxOpen
	if maxOpen == 0 {
		maxOpen = defaultMaxOpen
	}
	open := make(chan struct{}, maxOpen)
	var wg sync.WaitGroup
	defer wg.Wait()
	requests := context.WithoutCancel(ctx)
	for due := time.Now(); ; {
		rate := p.Rate(due)
		if rate <= 0 {
			due = later(due, time.Now()).Add(idlePoll)
		} else {
			due = due.Add(time.Duration(rng.ExpFloat64() / rate * float64(time.Second)))
		}
		if waitUntil(ctx, due) != nil || ctx.Err() != nil {
			return
		}
		if rate <= 0 {
			continue
		}
		if p.MaxLate > 0 && time.Since(due) > p.MaxLate {
			p.Refuse(due, "sent too late")
			continue
		}
		select {
		case open <- struct{}{}:
			wg.Go(func() {
				p.Send(requests, due)
				<-open
			})
		default:
			p.Refuse(due, "too many under way")
		}
	}
}
