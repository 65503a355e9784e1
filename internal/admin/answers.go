package admin

import (
	"bytes"
	"context"
	"net/http"
	"time"
)

// Bounds of what reads cost together. A large plan takes megabytes and a part
// of a second to write as JSON, and who reads slowly holds what is written for
// them.
const (
	answersAtOnce = 2                // large answers of a route that are made at the same time
	answerWait    = 10 * time.Second // until one's turn comes
	maxProfiles   = 8                // profiles that are taken at the same time
)

// large answers reads whose answer grows with the fleet. Those of a route are
// made in turn, and of what waits for slow readers there is only so much: what
// is beyond that is refused, so that readers cost a bounded amount of memory.
func (s *Server) large(h http.HandlerFunc) http.HandlerFunc {
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

// inTurn runs f when there is room for its token; false where it did not.
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
