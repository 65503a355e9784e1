package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/fleet/envoy"
	"github.com/isobar-xds/isobar/internal/fleet/envoyloop"
)

// Balancer is a virtual IP address in front of several servers, as a layer 4
// load balancer provides it: it accepts TCP connections on one address of the
// loopback interface and forwards each to the next server that accepts one.
type Balancer struct {
	listener net.Listener
	work     sync.WaitGroup

	mu      sync.Mutex
	servers []string // addresses, in turn
	open    map[net.Conn]struct{}
	closed  bool
}

// dialPatience bounds how long a server may take to accept a connection.
const dialPatience = time.Second

// NewBalancer starts a balancer in front of the servers, given by address.
func NewBalancer(servers []string) (*Balancer, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	b := &Balancer{listener: l, servers: slices.Clone(servers), open: map[net.Conn]struct{}{}}
	b.work.Go(b.accept)
	return b, nil
}

// Serve forwards new connections to other servers.
func (b *Balancer) Serve(servers []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.servers = slices.Clone(servers)
}

// Address returns where clients connect.
func (b *Balancer) Address() string { return b.listener.Addr().String() }

// Close ends all connections.
func (b *Balancer) Close() error {
	err := b.listener.Close()
	b.mu.Lock()
	b.closed = true
	for c := range b.open {
		err = errors.Join(err, ignoreClosed(c.Close()))
	}
	b.mu.Unlock()
	b.work.Wait()
	return err
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (b *Balancer) accept() {
	for {
		c, err := b.listener.Accept()
		if err != nil {
			return // closed
		}
		b.work.Go(func() { b.forward(c) })
	}
}

// forward connects a client to a server until either side ends.
func (b *Balancer) forward(client net.Conn) {
	defer func() { _ = client.Close() }() // it may be closed already
	server := b.dial()
	if server == nil {
		return
	}
	defer func() { _ = server.Close() }() // it may be closed already
	if !b.track(client, server) {
		return
	}
	defer b.untrack(client, server)
	ended := make(chan struct{}, 2)
	pass := func(to, from net.Conn) {
		_, _ = io.Copy(to, from) // how it ends makes no difference
		ended <- struct{}{}
	}
	go pass(server, client)
	go pass(client, server)
	<-ended
	_, _ = client.Close(), server.Close() // so that the other direction ends, too
	<-ended
}

// dial returns a connection to the next server that accepts one; nil if none does.
func (b *Balancer) dial() net.Conn {
	b.mu.Lock()
	servers := slices.Clone(b.servers)
	b.servers = append(b.servers[1:], b.servers[0])
	b.mu.Unlock()
	d := net.Dialer{Timeout: dialPatience}
	for _, s := range servers {
		if c, err := d.DialContext(context.Background(), "tcp", s); err == nil {
			return c
		}
	}
	return nil
}

func (b *Balancer) track(connections ...net.Conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	for _, c := range connections {
		b.open[c] = struct{}{}
	}
	return true
}

func (b *Balancer) untrack(connections ...net.Conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range connections {
		delete(b.open, c)
	}
}

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
