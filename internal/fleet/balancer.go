package fleet

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"time"
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
