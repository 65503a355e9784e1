package admission_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admission"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// TestOneAddressGetsHalf: a flood from one place leaves room for the others.
func TestOneAddressGetsHalf(t *testing.T) {
	r := admission.NewRate(100, 1000, start)
	count := func(address string, tries int, now time.Time) (in int, last admission.Reason) {
		for range tries {
			if last = r.Take(address, now); last == "" {
				in++
			}
		}
		return in, last
	}
	if in, why := count("a", 5000, start); in != 500 || why != admission.PeerRate {
		t.Errorf("the flood: %d in, then %q", in, why)
	}
	for i := range 100 {
		if why := r.Take(fmt.Sprint("other-", i), start); why != "" {
			t.Fatalf("other %d: %q", i, why)
		}
	}
	if in, why := count("b", 5000, start); in != 400 || why != admission.TotalRate {
		t.Errorf("a second flood: %d in, then %q", in, why)
	}
	now := start.Add(time.Second)
	if in, _ := count("a", 5000, now); in != 50 {
		t.Errorf("a second later: %d in, want half of 100", in)
	}
	if in, _ := count("c", 5000, now); in != 50 {
		t.Errorf("another, a second later: %d in, want the other half", in)
	}
	if in, _ := count("a", 5000, start); in != 0 {
		t.Errorf("a clock that went back let %d in", in)
	}
}

// TestManyAddresses: what is remembered is bounded, and those that are not
// remembered apart share what one address may take.
func TestManyAddresses(t *testing.T) {
	r := admission.NewRate(1000, 1_000_000, start)
	for i := range 16_384 {
		if why := r.Take(fmt.Sprint(i), start); why != "" {
			t.Fatal(why)
		}
	}
	in := 0
	for i := range 600_000 {
		if r.Take(fmt.Sprint("late-", i), start) == "" {
			in++
		}
	}
	if in != 500_000 {
		t.Errorf("%d late ones got in, want half of the burst", in)
	}
	now := start.Add(time.Hour) // the early ones are full again and forgotten
	if why := r.Take("new", now); why != "" {
		t.Error(why)
	}
}

// TestRateKeepsItsPromise: over any time, no more come in than burst and rate
// allow, of all and of each address.
func TestRateKeepsItsPromise(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate, burst := float64(rapid.IntRange(1, 50).Draw(t, "rate")), rapid.IntRange(1, 50).Draw(t, "burst")
		r := admission.NewRate(rate, burst, start)
		now, in := start, map[string]int{}
		for range rapid.IntRange(1, 300).Draw(t, "tries") {
			now = now.Add(time.Duration(rapid.IntRange(0, 100).Draw(t, "ms")) * time.Millisecond)
			a := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "address")
			if r.Take(a, now) == "" {
				in[a]++
				in[""]++
			}
		}
		passed := now.Sub(start).Seconds()
		if most := float64(burst) + rate*passed; float64(in[""]) > most+1e-6 {
			t.Errorf("%d in, at most %v", in[""], most)
		}
		for _, a := range []string{"a", "b", "c"} {
			if most := max(1, float64(burst)/2) + rate/2*passed; float64(in[a]) > most+1e-6 {
				t.Errorf("%d of %s in, at most %v", in[a], a, most)
			}
		}
	})
}

func TestPace(t *testing.T) {
	p := admission.NewPace(20, 20, start)
	wait := func(address string, streams int, after, want time.Duration) {
		t.Helper()
		if got := p.Wait(address, streams, start.Add(after)); got != want {
			t.Errorf("%s waits %v for %d after %v, want %v", address, got, streams, after, want)
		}
	}
	const ms = time.Millisecond
	wait("a", 4, 0, 0)
	wait("a", 6, 0, 0) // half of the burst is for one address
	wait("a", 100, 0, 10*ms)
	wait("a", 100, 0, 20*ms) // behind the first
	wait("a", 100, 15*ms, 15*ms)
	wait("a", 1, 15*ms, 10*ms)      // one alone does not wait for all of those
	wait("a", 1, 50*ms, ms/10)      // what is over is forgotten
	wait("a", 1001, 150*ms, 100*ms) // one of them is within the rate
	wait("a", 1_000_000, 150*ms, 10*time.Second)
	wait("a", 2000, -time.Hour, 10*time.Second) // a clock that goes back
	wait("b", 10, 160*ms, 0)
	wait("a", 1, 500*ms, 0) // within its rate again
}

func TestBudgets(t *testing.T) {
	b := admission.NewBudgets(2, 1, 1)
	open := func(peer string, want admission.Reason) *admission.Stream {
		t.Helper()
		s, why := b.Open(peer, admission.LoadReports)
		if why != want {
			t.Fatalf("%s: %q, want %q", peer, why, want)
		}
		return s
	}
	locate := func(s *admission.Stream, l string, want admission.Reason) {
		t.Helper()
		if why := s.Locate(isobar.MustLocality(l)); why != want {
			t.Errorf("%s: %q, want %q", l, why, want)
		}
	}
	one, two := open("a", ""), open("a", "")
	open("a", admission.PeerStreams)
	other := open("b", "")
	locate(one, "eu/a", "")
	locate(two, "eu/b", admission.PeerLocalities)
	locate(two, "eu/a", "")
	locate(two, "eu/b", "") // it has its locality already
	locate(other, "eu/b", "")
	if s, why := b.Open("a", admission.Discovery); why != "" {
		t.Errorf("another kind: %q", why)
	} else {
		s.Close()
	}
	if s, why := b.Open("a", admission.Operation); why != "" {
		t.Errorf("the first one of an operator: %q", why)
	} else if _, why := b.Open("a", admission.Operation); why != admission.PeerStreams {
		t.Errorf("the second one of an operator: %q, want %q", why, admission.PeerStreams)
	} else {
		s.Close()
	}
	one.Close()
	one.Close()
	locate(one, "eu/b", "")
	three := open("a", "")
	locate(three, "eu/b", admission.PeerLocalities) // two is still in eu/a
	two.Close()
	locate(three, "eu/b", "")
	three.Close()
	other.Close()
}

func TestConnections(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := admission.Listen(inner, admission.Limits{Most: 4})
	accepted := make(chan net.Conn, 10)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	dial := func() net.Conn {
		c, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	first, second := dial(), dial()
	a, b := <-accepted, <-accepted
	third := dial() // half of 4 are open from this address
	if err := third.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := third.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the third connection was let in: %v", err)
	}
	_ = a.Close()
	_ = a.Close()
	fourth := dial()
	c := <-accepted
	for _, x := range []net.Conn{first, second, third, fourth, b, c} {
		_ = x.Close()
	}
	_ = l.Close()
	<-done
}

func TestAddresses(t *testing.T) {
	for in, want := range map[string]string{
		"10.1.2.3": "10.1.2.3", "::ffff:10.1.2.3": "10.1.2.3",
		"2001:db8:1:2:3:4:5:6": "2001:db8:1:2::/64", "fe80::1": "fe80::/64",
	} {
		if got := admission.Address(&net.TCPAddr{IP: net.ParseIP(in), Port: 1}); got != want {
			t.Errorf("%s counts as %s, want %s", in, got, want)
		}
	}
	if got := admission.Address(&net.UnixAddr{Name: "x"}); got != "local" {
		t.Error(got)
	}
}
