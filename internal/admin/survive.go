package admin

import (
	"fmt"
	"net/http"
	"runtime/debug"
	"time"
)

// survive turns a panic in a handler into the answer to that one request, and
// tells of it: net/http would close the connection and say little.
func (s *access) survive(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out := &begun{ResponseWriter: w}
		defer func() {
			x := recover()
			switch x {
			case nil:
				return
			case http.ErrAbortHandler: // on purpose
				panic(x)
			}
			if skipped, ok := s.panics.Allow(time.Now()); ok {
				s.opts.Logger.Error("internal error in the admin interface; please report it", "request", r.Method+" "+r.URL.Path,
					"panic", fmt.Sprint(x), "stack", string(debug.Stack()), "skipped_lines", skipped)
			}
			if out.header {
				panic(http.ErrAbortHandler) // the client must not take half an answer for a whole one
			}
			clear(w.Header())
			fail(w, http.StatusInternalServerError, Problem{Error: "internal error in the admin interface", Fix: "report it, with the stack from the server's log"})
		}()
		h.ServeHTTP(out, r)
	})
}

// begun remembers whether an answer has begun.
type begun struct {
	http.ResponseWriter

	header bool
}

// WriteHeader implements http.ResponseWriter.
func (b *begun) WriteHeader(code int) {
	b.header = true
	b.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (b *begun) Write(data []byte) (int, error) {
	b.header = true
	return b.ResponseWriter.Write(data)
}

// Unwrap lets http.ResponseController reach the connection.
func (b *begun) Unwrap() http.ResponseWriter { return b.ResponseWriter }
