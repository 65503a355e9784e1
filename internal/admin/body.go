package admin

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/isobar-xds/isobar/internal/rpc"
)

// budget bounds bytes that many requests hold at once.
type budget struct {
	most int64
	used atomic.Int64
}

func (b *budget) take(n int64) bool {
	if b.used.Add(n) > b.most {
		b.used.Add(-n)
		return false
	}
	return true
}

func (b *budget) release(n int64) { b.used.Add(-n) }

// errBudget says that the bodies of all writes together are too much.
var errBudget = errors.New("too many bodies at once")

// meteredReader takes what it reads out of a budget.
type meteredReader struct {
	from   io.Reader
	budget *budget
	taken  int64
}

// Read implements io.Reader.
func (m *meteredReader) Read(p []byte) (int, error) {
	n, err := m.from.Read(p)
	if !m.budget.take(int64(n)) {
		return 0, errBudget
	}
	m.taken += int64(n)
	return n, err
}

func (m *meteredReader) release() { m.budget.release(m.taken) }

// readBody reads at most limit bytes of text. A body that is compressed with gzip is bounded by
// what it becomes, too. What it read counts against the budget of all bodies until release is
// called. Without ok the request is answered, and nothing is left to release.
func (s *core) readBody(w http.ResponseWriter, r *http.Request, limit int64) (body []byte, release func(), ok bool) {
	compressed, err := rpc.Compressed(w, r)
	if err != nil {
		fail(w, http.StatusUnsupportedMediaType, Problem{Error: err.Error(), Place: "Content-Encoding", Fix: "send gzip, or do not compress"})
		return nil, nil, false
	}
	m := &meteredReader{from: rpc.LimitBody(w, r, limit), budget: &s.bodies}
	body, err = io.ReadAll(m)
	if err == nil && compressed {
		body, err = m.decompress(body, limit)
	}
	if err == nil {
		body, err = inUTF8(body)
	}
	if err == nil {
		return body, m.release, true
	}
	m.release()
	failBody(w, err, limit)
	return nil, nil, false
}

// failBody answers a request whose body could not be read.
func failBody(w http.ResponseWriter, err error, limit int64) {
	var large *http.MaxBytesError
	var coded *codingError
	switch {
	case errors.As(err, &large):
		fail(w, http.StatusRequestEntityTooLarge, Problem{
			Error: fmt.Sprintf("the body is larger than %d bytes", limit), Fix: "send fewer or smaller services at once",
		})
	case errors.As(err, &coded):
		fail(w, http.StatusBadRequest, Problem{Error: coded.text, Place: "body", Fix: coded.fix})
	case errors.Is(err, errBudget):
		failBusy(w)
	case errors.Is(err, os.ErrDeadlineExceeded):
		fail(w, http.StatusRequestTimeout, Problem{
			Error: fmt.Sprintf("the body did not come as a whole within %s", readTimeout), Fix: "send it faster",
		})
	default:
		fail(w, http.StatusBadRequest, Problem{Error: "the body could not be read: " + err.Error(), Fix: "send it again"})
	}
}

// codingError says that a body is no text in UTF-8.
type codingError struct{ text, fix string }

// Error implements error.
func (e *codingError) Error() string { return e.text }

// decompress reads what a body holds that was compressed with gzip, at most limit bytes. The body
// is there as a whole: a client that sends slowly does not keep a decompressor.
func (m *meteredReader) decompress(body []byte, limit int64) ([]byte, error) {
	damaged := func(err error) error {
		return &codingError{"the body is no gzip, or damaged: " + err.Error(), "send it again, or leave out the header Content-Encoding"}
	}
	z, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil, damaged(err)
	}
	m.from = io.LimitReader(z, limit+1)
	out, err := io.ReadAll(m)
	switch {
	case errors.Is(err, errBudget):
		return nil, err
	case err != nil:
		return nil, damaged(err)
	case int64(len(out)) > limit:
		return nil, &http.MaxBytesError{Limit: limit}
	}
	return out, nil
}

// inUTF8 takes the byte order mark off a text, and refuses texts of other encodings, which
// would be errors of syntax that nobody understands.
func inUTF8(body []byte) ([]byte, error) {
	body = bytes.TrimPrefix(body, []byte("\xef\xbb\xbf"))
	head := body[:min(len(body), 4)]
	switch {
	case bytes.HasPrefix(head, []byte("\x1f\x8b")):
		return nil, &codingError{"the body is compressed with gzip, and no header says so", "send the header Content-Encoding: gzip, or do not compress"}
	case bytes.HasPrefix(head, []byte("\xff\xfe")), bytes.HasPrefix(head, []byte("\xfe\xff")), bytes.IndexByte(head, 0) >= 0:
		return nil, &codingError{"the body is no UTF-8 text; it looks like UTF-16 or UTF-32", "send UTF-8"}
	}
	return body, nil
}

// Bounds of what reads cost together. A large plan takes megabytes and a part
// of a second to write as JSON, and stays in memory until the client has read it.
const (
	answersAtOnce = 2                // large answers of a route that are made at the same time
	answerWait    = 10 * time.Second // until one's turn comes
	maxProfiles   = 8                // profiles that are taken at the same time
)

// large answers reads whose answer grows with the fleet. Those of a route are
// made in turn, and of what waits for slow readers there is only so much: what
// is beyond that is refused, so that readers cost a bounded amount of memory.
func (s *core) large(h http.HandlerFunc) http.HandlerFunc {
	making := make(chan struct{}, answersAtOnce)
	return func(w http.ResponseWriter, r *http.Request) {
		a := &answer{header: w.Header(), code: http.StatusOK}
		if !inTurn(r.Context(), making, func() { h(a, r) }) || !s.answers.take(int64(a.body.Len())) {
			clear(w.Header())
			failCrowded(w)
			return
		}
		defer s.answers.release(int64(a.body.Len()))
		w.WriteHeader(a.code)
		_, _ = w.Write(a.body.Bytes()) // the client may be gone; there is nobody to tell
	}
}

// inTurn runs f when the budget permits its token; false if it did not.
func inTurn(ctx context.Context, tokens chan struct{}, f func()) bool {
	ctx, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	select {
	case tokens <- struct{}{}:
		defer func() { <-tokens }()
		f()
		return true
	case <-ctx.Done():
		return false
	}
}

// answer keeps what a handler writes.
type answer struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(code int) { a.code = code }

// Write implements http.ResponseWriter.
func (a *answer) Write(b []byte) (int, error) { return a.body.Write(b) }

func failCrowded(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "5")
	fail(w, http.StatusServiceUnavailable, Problem{
		Error: "too many large answers are in progress, or clients read them too slowly",
		Fix:   "try again in some seconds; read answers as fast as they come",
	})
}

// few lets only so many requests through at a time.
func few(most int, h http.HandlerFunc) http.HandlerFunc {
	under := make(chan struct{}, most)
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case under <- struct{}{}:
			defer func() { <-under }()
			h(w, r)
		default:
			w.Header().Set("Retry-After", "30")
			fail(w, http.StatusServiceUnavailable, Problem{Error: "too many profiles are being taken", Fix: "try again when one of them has ended"})
		}
	}
}

// What bodies may take together while they are decoded and carried out, in bytes. The values
// of a body take at most decodedOfByte for each of its bytes, and from a mebibyte on no more
// than config/strict lets them: decodedLeast, and decodedUsual for each byte. Bodies up to
// freeBody never wait: as many as there are writes at once take little.
const (
	maxDecoded    = 288 << 20
	decodedOfByte = 72
	decodedLeast  = 8 << 20
	decodedUsual  = 16
	freeBody      = 16 << 10
)

// turns lets bodies be decoded in turn: values take up to 72 times the memory of their text.
type turns struct {
	free *semaphore.Weighted
	used *atomic.Int64
}

func newTurns() turns { return turns{free: semaphore.NewWeighted(maxDecoded), used: new(atomic.Int64)} }

// decodedCost returns what the values of a body of n bytes take at most.
func decodedCost(n int64) int64 {
	return min(decodedOfByte*n, decodedLeast+decodedUsual*n, maxDecoded)
}

// await waits until there is memory for the values of a body of n bytes, which done gives
// back; false if there was none for answerWait.
func (t *turns) await(ctx context.Context, n int) (done func(), ok bool) {
	cost := decodedCost(int64(n))
	if n > freeBody {
		ctx, cancel := context.WithTimeout(ctx, answerWait)
		defer cancel()
		if t.free.Acquire(ctx, cost) != nil {
			return nil, false
		}
	}
	t.used.Add(cost)
	return func() {
		t.used.Add(-cost)
		if n > freeBody {
			t.free.Release(cost)
		}
	}, true
}

// BodyMemory returns what bodies of requests and the values in them take, and may take.
func (s *Server) BodyMemory() (used, most int64) {
	return s.bodies.used.Load() + s.decoded.used.Load(), s.bodies.most + maxDecoded
}
