package admission_test

import (
	"net"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/isobar-xds/isobar/internal/admission"
)

func TestDivideFiles(t *testing.T) {
	for _, tc := range []struct {
		limit          int
		clients, admin int
	}{
		{1_024, 768, 128},
		{4_096, 3_072, 512},
		{1_048_576, 1_048_576 - 1_024 - 2_000, 2_000},
		{64, 1, 16}, // nothing works with so few
	} {
		got := admission.DivideFiles(tc.limit, 2_000)
		if got.Clients != tc.clients || got.Admin != tc.admin {
			t.Errorf("%d files: %d for clients, %d for operators; want %d and %d", tc.limit, got.Clients, got.Admin, tc.clients, tc.admin)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(256, 1<<30).Draw(t, "limit")
		f := admission.DivideFiles(limit, 2_000)
		if reserve := limit - f.Clients - f.Admin; reserve < 64 || f.Admin < 16 || f.Clients < limit/2 {
			t.Fatalf("%d files: %+v leaves %d", limit, f, reserve)
		}
	})
}

// Listeners with limits of their own take connections from one pool.
func TestPoolOfSeveralListeners(t *testing.T) {
	pool := admission.NewPool(3)
	listeners := make([]net.Listener, 2)
	for i := range listeners {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		listeners[i] = admission.Listen(l, admission.Limits{Most: 100, Pool: pool})
		defer func() { _ = l.Close() }()
	}
	accepted := make(chan net.Conn, 10)
	for _, l := range listeners {
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				accepted <- c
			}
		}()
	}
	dial := func(l net.Listener) net.Conn {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	// refused reports whether the server closes the connection.
	refused := func(c net.Conn) bool {
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
		_, err := c.Read(make([]byte, 1))
		return err != nil
	}
	dial(listeners[0])
	dial(listeners[1])
	dial(listeners[0])
	var open []net.Conn
	for range 3 {
		open = append(open, <-accepted)
	}
	if got, want := pool.Fullest(), (admission.Use{Peer: "127.0.0.1", Used: 2, Most: 50}); got != want {
		t.Errorf("the fullest address is %+v, want %+v", got, want)
	}
	if c := dial(listeners[1]); !refused(c) {
		t.Error("a fourth connection was accepted")
	}
	_ = open[0].Close()
	_ = open[0].Close() // counts once
	dial(listeners[1])
	next := <-accepted
	if c := dial(listeners[0]); !refused(c) {
		t.Error("a connection that was closed twice made room for two")
	}
	_ = next.Close()
	for _, c := range open {
		_ = c.Close()
	}
}
