package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Dialer opens a connection, as net.Dialer.DialContext does for TCP.
type Dialer func(ctx context.Context, address string) (net.Conn, error)

// TCP opens connections as they are.
func TCP(ctx context.Context, address string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", address)
}

// DistantDialer returns a dialer whose connections, which dial opens, are as slow
// as the distance to the address: rtt tells the round-trip time. Each direction
// delays by half of it, opening by all of it, a refusal too. Any amount of data
// is under way at once: distance delays, it does not narrow.
func DistantDialer(dial Dialer, rtt func(address string) time.Duration) Dialer {
	return func(ctx context.Context, address string) (net.Conn, error) {
		began := time.Now()
		conn, err := dial(ctx, address)
		wait := rtt(address)
		if wait <= 0 {
			return conn, err
		}
		if waitErr := waitUntil(ctx, began.Add(wait)); waitErr != nil {
			if conn != nil {
				_ = conn.Close()
			}
			return nil, fmt.Errorf("dial %s: %w", address, waitErr)
		}
		if err != nil {
			return nil, err
		}
		return newDistantConn(conn, wait/2), nil
	}
}

// chunkSize is how much is read at once; it holds two HTTP/2 frames of
// the default size.
const chunkSize = 32 << 10

// distantConn delays what passes through a connection in both directions.
// Closing it loses what is under way. A read deadline that expires ends
// reading for good, which is all that HTTP/2 needs of it.
type distantConn struct {
	net.Conn

	cancel  context.CancelCauseFunc
	ctx     context.Context //nolint:containedctx // its end is the end of the connection
	out     *delayLine[[]byte]
	in      *delayLine[[]byte]
	arrived chan []byte // what is due, one chunk at a time
	workers sync.WaitGroup

	readMu sync.Mutex
	rest   []byte // of the newest chunk
}

func newDistantConn(conn net.Conn, delay time.Duration) *distantConn {
	ctx, cancel := context.WithCancelCause(context.Background())
	c := &distantConn{
		Conn: conn, ctx: ctx, cancel: cancel,
		out: newDelayLine[[]byte](delay), in: newDelayLine[[]byte](delay),
		arrived: make(chan []byte),
	}
	c.workers.Go(c.send)
	c.workers.Go(c.receive)
	c.workers.Go(c.hand)
	return c
}

// send writes what is due to the underlying connection.
func (c *distantConn) send() {
	err := c.out.run(c.ctx, func(b []byte) error {
		_, err := c.Conn.Write(b)
		return err
	})
	c.cancel(err)
}

// receive reads from the underlying connection as fast as it comes. The end
// of the stream travels like data: nil stands for it.
func (c *distantConn) receive() {
	b := make([]byte, chunkSize)
	for {
		n, err := c.Conn.Read(b)
		if n > 0 && c.in.put(c.ctx, bytes.Clone(b[:n])) != nil {
			return
		}
		if errors.Is(err, io.EOF) {
			_ = c.in.put(c.ctx, nil)
			return
		}
		if err != nil {
			// A reset travels too: wait as long as its packet would.
			_ = waitUntil(c.ctx, time.Now().Add(c.in.delay))
			c.cancel(err)
			return
		}
	}
}

// hand gives what is due to Read.
func (c *distantConn) hand() {
	err := c.in.run(c.ctx, func(b []byte) error {
		if b == nil {
			return io.EOF
		}
		select {
		case c.arrived <- b:
			return nil
		case <-c.ctx.Done():
			return context.Cause(c.ctx)
		}
	})
	c.cancel(err)
}

// Read implements [net.Conn].
func (c *distantConn) Read(p []byte) (int, error) {
	c.readMu.Lock()
	defer c.readMu.Unlock()
	if len(c.rest) == 0 {
		select {
		case c.rest = <-c.arrived:
		case <-c.ctx.Done():
			return 0, context.Cause(c.ctx)
		}
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// Write implements [net.Conn]; it returns before the data arrives.
func (c *distantConn) Write(p []byte) (int, error) {
	if err := c.out.put(c.ctx, bytes.Clone(p)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close implements [net.Conn]; it returns when nothing of the connection runs
// any more.
func (c *distantConn) Close() error {
	c.cancel(net.ErrClosed)
	err := c.Conn.Close()
	c.workers.Wait()
	return err
}

// delayLineDepth bounds what is under way in a delay line; a full line blocks
// its sender, which is what a full pipe does.
const delayLineDepth = 1024

// delayLine hands on values in order, each a fixed delay after it was put in.
// It models distance, not bandwidth: any number of values are under way at once.
type delayLine[T any] struct {
	delay time.Duration
	queue chan delayed[T]
}

type delayed[T any] struct {
	value T
	due   time.Time
}

func newDelayLine[T any](delay time.Duration) *delayLine[T] {
	return &delayLine[T]{delay: delay, queue: make(chan delayed[T], delayLineDepth)}
}

// put adds a value; it fails only when the context ends.
func (d *delayLine[T]) put(ctx context.Context, v T) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	select {
	case d.queue <- delayed[T]{value: v, due: time.Now().Add(d.delay)}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// run hands each value to deliver when it is due, until the context ends or
// deliver fails.
func (d *delayLine[T]) run(ctx context.Context, deliver func(T) error) error {
	for {
		select {
		case item := <-d.queue:
			if err := waitUntil(ctx, item.due); err != nil {
				return err
			}
			if err := deliver(item.value); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// waitUntil returns at t, or earlier with the cause when the context ends.
func waitUntil(ctx context.Context, t time.Time) error {
	d := time.Until(t)
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
