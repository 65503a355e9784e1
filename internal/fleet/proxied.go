package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/fleet/envoy"
	"github.com/isobar-xds/isobar/internal/fleet/envoyloop"
)

// Proxies lets clients send through Envoys, one for each client.
type Proxies struct {
	Path string // Envoy's binary
	// Bootstrap returns what `isobar bootstrap envoy` prints for a client, with
	// an empty list of listeners.
	Bootstrap func(c *ClientOptions) (string, error)
}

// caller is a client of a run.
type caller interface {
	Locality() isobar.Locality
	// Ready sends calls until one is answered, or the context ends.
	Ready(ctx context.Context) error
	// Call sends one request and returns the address of the backend that had it;
	// empty when none was reached.
	Call(ctx context.Context) (address string, err error)
	Close() error
}

// sourceKey is the metadata of requests through a proxy that names the client's
// locality: backends then act as far away as they are.
const sourceKey = "x-fleet-source"

// proxiedClient is a gRPC client without xDS that sends to an Envoy with a
// bootstrap, and so a node and a locality, of its own. All balancing is Envoy's.
type proxiedClient struct {
	opts    ClientOptions
	timeout time.Duration // of the Envoy's route
	dir     string
	proxy   *envoyloop.Proxy
	conn    *grpc.ClientConn
}

// startProxied starts an Envoy and a client of it.
func startProxied(ctx context.Context, p *Proxies, opts ClientOptions, timeout time.Duration) (_ *proxiedClient, err error) {
	c := &proxiedClient{opts: opts, timeout: timeout}
	defer func() {
		if err != nil {
			err = fmt.Errorf("client %s: %w", opts.ID, errors.Join(err, c.Close()))
		}
	}()
	if c.dir, err = os.MkdirTemp("", "isobar-envoy-"); err != nil {
		return nil, err
	}
	text, err := p.Bootstrap(&opts)
	if err != nil {
		return nil, err
	}
	if text, err = envoyloop.WithListener(text, fmt.Sprintf("cluster: %q, timeout: %gs", opts.Service, timeout.Seconds())); err != nil {
		return nil, err
	}
	log, err := os.Create(c.dir + "/log")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	c.proxy, err = envoyloop.StartProxy(ctx, envoy.Config{Path: p.Path, Bootstrap: []byte(text), Dir: c.dir, Log: log}, 0)
	if err != nil {
		said, _ := os.ReadFile(log.Name())
		return nil, fmt.Errorf("%w\n%s", err, said)
	}
	c.conn, err = grpc.NewClient("passthrough:///"+c.proxy.Address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	return c, err
}

func (c *proxiedClient) Locality() isobar.Locality { return c.opts.Locality }

func (c *proxiedClient) Ready(ctx context.Context) error {
	for {
		_, err := c.Call(ctx)
		if err == nil {
			return nil
		}
		if waitUntil(ctx, time.Now().Add(readyPause)) != nil {
			return fmt.Errorf("client %s: %w", c.opts.ID, err)
		}
	}
}

// Call does not end with the context, but with the timeout of the route: only
// then the Envoy's answer says which backend had the request.
func (c *proxiedClient) Call(ctx context.Context) (address string, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.timeout+time.Second)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, sourceKey, c.opts.Locality.String())
	var header, trailer metadata.MD
	err = c.conn.Invoke(ctx, serveMethod, new(emptypb.Empty), new(emptypb.Empty), grpc.Header(&header), grpc.Trailer(&trailer))
	for _, md := range []metadata.MD{header, trailer} { // an answer of the Envoy itself has trailers only
		if v := md.Get(envoyloop.UpstreamHeader); len(v) > 0 {
			address = v[0]
		}
	}
	return address, err
}

func (c *proxiedClient) Close() error {
	var err error
	if c.conn != nil {
		err = c.conn.Close()
	}
	if c.proxy != nil {
		c.proxy.Kill()
	}
	if c.dir != "" {
		err = errors.Join(err, os.RemoveAll(c.dir))
	}
	return err
}

// distance is how far away the client of a request is, there and back: known
// only of requests through proxies, others have connections as slow as that.
func (b *Backend) distance(ctx context.Context) time.Duration {
	md, _ := metadata.FromIncomingContext(ctx)
	from := md.Get(sourceKey)
	if b.opts.RTT == nil || len(from) == 0 {
		return 0
	}
	l, err := isobar.ParseLocality(from[0])
	if err != nil {
		return 0
	}
	return b.opts.RTT(l)
}
