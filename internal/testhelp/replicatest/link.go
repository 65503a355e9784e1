package replicatest

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// Link is a TCP connection between two machines, as a process on one machine can have
// it cut: connections go through it. While it is cut it carries nothing, in neither
// direction, and tells nobody; what was sent before it heals arrives then.
type Link struct {
	listener net.Listener
	target   string
	work     sync.WaitGroup

	mu     sync.Mutex
	healed chan struct{} // closed while the link carries; replaced when it is cut
	delay  time.Duration // of each answer of the target
	open   map[net.Conn]struct{}
	closed bool
}

// NewLink listens on an address of its own, and forwards to the target.
func NewLink(target string) (*Link, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	k := &Link{listener: l, target: target, healed: make(chan struct{}), open: map[net.Conn]struct{}{}}
	close(k.healed)
	k.work.Go(k.accept)
	return k, nil
}

// Address returns where to connect.
func (k *Link) Address() string { return k.listener.Addr().String() }

// Cut has the link carry nothing.
func (k *Link) Cut() {
	k.mu.Lock()
	defer k.mu.Unlock()
	select {
	case <-k.healed:
		k.healed = make(chan struct{})
	default: // it is cut
	}
}

// Heal ends what Cut and Slow began.
func (k *Link) Heal() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.delay = 0
	select {
	case <-k.healed:
	default:
		close(k.healed)
	}
}

// Slow delays what the target sends.
func (k *Link) Slow(d time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.delay = d
}

// Close ends the link and its connections.
func (k *Link) Close() error {
	err := k.listener.Close()
	k.mu.Lock()
	k.closed = true
	for c := range k.open {
		_ = c.Close() // the other side may have
	}
	k.mu.Unlock()
	k.Heal()
	k.work.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (k *Link) state() (healed chan struct{}, delay time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.healed, k.delay
}

func (k *Link) accept() {
	for {
		c, err := k.listener.Accept()
		if err != nil {
			return // closed
		}
		k.work.Go(func() { k.forward(c) })
	}
}

func (k *Link) forward(from net.Conn) {
	defer func() { _ = from.Close() }() // it may be closed already
	healed, _ := k.state()
	<-healed
	d := net.Dialer{Timeout: 3 * time.Second}
	to, err := d.DialContext(context.Background(), "tcp", k.target)
	if err != nil {
		return
	}
	defer func() { _ = to.Close() }() // it may be closed already
	k.mu.Lock()
	if k.closed {
		k.mu.Unlock()
		return
	}
	k.open[from], k.open[to] = struct{}{}, struct{}{}
	k.mu.Unlock()
	ended := make(chan struct{}, 2)
	go k.pass(to, from, false, ended)
	go k.pass(from, to, true, ended)
	<-ended
	_, _ = from.Close(), to.Close() // so that the other direction ends, too
	<-ended
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.open, from)
	delete(k.open, to)
}

func (k *Link) pass(to, from net.Conn, answers bool, ended chan<- struct{}) {
	defer func() { ended <- struct{}{} }()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		healed, delay := k.state()
		<-healed
		if answers && delay > 0 {
			time.Sleep(delay) //nolint:forbidigo // the delay of a slow network
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}
