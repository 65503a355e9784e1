package listen

import (
	"context"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar/internal/admission"
	"github.com/isobar-xds/isobar/internal/rpc"
)

// Bounds of answers that are made for one client, unlike what is pushed, which
// all share. gRPC keeps them until the client gives it window, whether or not
// its stream has ended, and HTTP until the client reads. gRPC would put one of more than 32 KiB
// into a buffer of 1 MiB, which only those that count are not.
const (
	largeAnswer = 4 << 10          // what is smaller is not counted
	mostAnswers = 256 << 20        // large ones that clients have yet to take; of one address half
	takeAnswer  = 30 * time.Second // to take one over HTTP
	pollTime    = 2 * time.Minute  // of a poll, which may be kept waiting for one
)

// answers counts the bytes of large answers that clients have yet to take.
type answers struct {
	mu   sync.Mutex
	used int
	by   map[string]int // address
}

// take counts an answer, or returns nil above the limit.
func (a *answers) take(address string, bytes int) *taken {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.used+bytes > mostAnswers || a.by[address]+bytes > mostAnswers/2 {
		return nil
	}
	if a.by == nil {
		a.by = map[string]int{}
	}
	a.used += bytes
	a.by[address] += bytes
	return &taken{answers: a, address: address, bytes: bytes}
}

// now returns the bytes that count.
func (a *answers) now() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return int64(a.used)
}

// taken is an answer that counts.
type taken struct {
	answers *answers
	address string
	bytes   int
	done    atomic.Bool
}

// release takes it out of the count. It may be called again.
func (t *taken) release() {
	if t.done.Swap(true) {
		return
	}
	a := t.answers
	a.mu.Lock()
	defer a.mu.Unlock()
	a.used -= t.bytes
	if a.by[t.address] -= t.bytes; a.by[t.address] == 0 {
		delete(a.by, t.address)
	}
}

// countedAnswer makes a large message one that counts until it is sent; others
// stay as they are.
func (g *entrance) countedAnswer(m any, address string) (any, error) {
	if _, shared := m.(*rpc.Frame); shared {
		return m, nil
	}
	p, ok := m.(proto.Message)
	if !ok {
		return m, nil
	}
	size := proto.Size(p)
	if size < largeAnswer {
		return m, nil
	}
	t := g.answers.take(address, size)
	if t == nil {
		return nil, g.turnAway(admission.Answers, address, "")
	}
	encoded, err := proto.Marshal(p)
	if err != nil {
		t.release()
		return nil, err
	}
	pool := &returned{taken: t}
	// gRPC does not free what a connection has left when it breaks; the collector does.
	runtime.AddCleanup(pool, (*taken).release, t)
	return &rpc.Frame{Pieces: mem.BufferSlice{mem.NewBuffer(&encoded, pool)}}, nil
}

// returned notes that gRPC gives the memory of an answer back. It implements
// [mem.BufferPool].
type returned struct{ taken *taken }

// Get is not called: nothing is taken from here.
func (*returned) Get(n int) *[]byte {
	b := make([]byte, n)
	return &b
}

// Put implements [mem.BufferPool].
func (r *returned) Put(*[]byte) { r.taken.release() }

// pollWriter answers a poll: what is large counts until it is taken, and the
// client has to take it in time.
type pollWriter struct {
	http.ResponseWriter

	gate    *entrance
	address string
}

func (g *entrance) newPollWriter(w http.ResponseWriter, address string) *pollWriter {
	out := &pollWriter{w, g, address}
	out.within(pollTime)
	return out
}

// within sets how long sending may take from now on. It also replaces what was
// set for the request before on the same connection.
func (w *pollWriter) within(d time.Duration) {
	_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(d)) // writers without a connection need none
}

// WriteHeader implements [http.ResponseWriter].
func (w *pollWriter) WriteHeader(code int) {
	w.within(takeAnswer)
	w.ResponseWriter.WriteHeader(code)
}

// Write implements [http.ResponseWriter].
func (w *pollWriter) Write(b []byte) (int, error) {
	w.within(takeAnswer)
	if len(b) >= largeAnswer {
		t := w.gate.answers.take(w.address, len(b))
		if t == nil {
			w.refuse()
			return len(b), nil
		}
		defer t.release()
	}
	return w.ResponseWriter.Write(b)
}

// refuse answers that the limit is reached. Answers are written in one piece, so nothing has been
// sent before.
func (w *pollWriter) refuse() {
	err := w.gate.turnAway(admission.Answers, w.address, "")
	refusePoll(w.ResponseWriter, err)
}

// Unwrap lets [http.ResponseController] reach the connection.
func (w *pollWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// RefusedChecker is a checker that is refused again and again.
type RefusedChecker struct{ Name, Why string }

// RefusedCheckers lists the checkers that are refused again and again, by name.
func (g *entrance) RefusedCheckers() []RefusedChecker { return g.refusals.often(time.Now()) }

const (
	// refusedHold is how long the stream of a checker that is refused again and
	// again is kept before it ends: Envoy is back within half a second.
	refusedHold = 4 * time.Second
	// refusedOften is from which refusal on, within refusedWithin of the one
	// before, a checker is held and named.
	refusedOften  = 3
	refusedWithin = time.Minute

	mostRefused = 1_000 // that are remembered
	mostHeld    = 100   // that are held at once; more are refused at once
)

// refusals are the checkers that are refused again and again, by what they call
// themselves. The zero value is ready to use.
type refusals struct {
	mu   sync.Mutex
	list map[string]*refusal
	held int
}

type refusal struct {
	count int
	last  time.Time
	why   string
}

// refuse notes that a checker is refused, and keeps one that comes again and
// again for a while.
func (r *refusals) refuse(ctx context.Context, name string, err error) {
	if !r.note(name, status.Convert(err).Message(), time.Now()) {
		return
	}
	timer := time.NewTimer(refusedHold)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held--
}

// note counts a refusal, and reports whether to hold it.
func (r *refusals) note(name, why string, now time.Time) (hold bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget(now)
	x := r.list[name]
	if x == nil {
		if len(r.list) >= mostRefused {
			return false
		}
		if r.list == nil {
			r.list = map[string]*refusal{}
		}
		x = &refusal{}
		r.list[name] = x
	}
	x.count++
	x.last, x.why = now, why
	hold = x.count >= refusedOften && r.held < mostHeld
	if hold {
		r.held++
	}
	return hold
}

// forget drops those that have not come for a while. The caller holds the lock.
func (r *refusals) forget(now time.Time) {
	for name, x := range r.list {
		if now.Sub(x.last) > refusedWithin {
			delete(r.list, name)
		}
	}
}

// often lists the checkers that are refused again and again.
func (r *refusals) often(now time.Time) (out []RefusedChecker) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget(now)
	for _, name := range slices.Sorted(maps.Keys(r.list)) {
		if x := r.list[name]; x.count >= refusedOften {
			out = append(out, RefusedChecker{name, strings.TrimPrefix(x.why, "isobar: ")})
		}
	}
	return out
}
