package admin

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"

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

// readBody reads at most limit bytes. What it read counts against the budget of
// all bodies until release is called. Without ok the request is answered, and
// nothing is left to release.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request, limit int64) (body []byte, release func(), ok bool) {
	m := &meteredReader{from: rpc.LimitBody(w, r, limit), budget: &s.bodies}
	body, err := io.ReadAll(m)
	if err == nil {
		return body, m.release, true
	}
	m.release()
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		fail(w, http.StatusRequestEntityTooLarge, Problem{
			Error: fmt.Sprintf("the body is larger than %d bytes", limit), Fix: "write fewer or smaller services at once",
		})
	case errors.Is(err, errBudget):
		failBusy(w)
	default:
		fail(w, http.StatusBadRequest, Problem{Error: "the body could not be read: " + err.Error(), Fix: "send it again"})
	}
	return nil, nil, false
}
