package listen

import (
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar/internal/admission"
	"github.com/isobar-xds/isobar/internal/rpc"
)

// Bounds of answers that are made for one client, unlike what is pushed, which
// all share. gRPC keeps them until the client gives it window, whether or not
// its stream has ended, and HTTP until the client reads.
const (
	largeAnswer = 64 << 10         // what is smaller is not counted
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

// take counts an answer, or gives nil where there is no room for it.
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

// refuse answers that there is no room. Answers are written in one piece, so
// nothing has been sent before.
func (w *pollWriter) refuse() {
	err := w.gate.turnAway(admission.Answers, w.address, "")
	refusePoll(w.ResponseWriter, err)
}

// Unwrap lets [http.ResponseController] reach the connection.
func (w *pollWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
