package rpc_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isobar-xds/isobar/internal/rpc"
)

// TestRefusalsOfPolls: who polls is refused as who has a stream is. Those for
// whom there is no room are told to come back, each at a time of its own.
func TestRefusalsOfPolls(t *testing.T) {
	for code, want := range map[codes.Code]int{
		codes.InvalidArgument: http.StatusBadRequest, codes.Unauthenticated: http.StatusUnauthorized,
		codes.PermissionDenied: http.StatusForbidden, codes.FailedPrecondition: http.StatusConflict,
		codes.ResourceExhausted: http.StatusTooManyRequests, codes.Unavailable: http.StatusServiceUnavailable,
		codes.Internal: http.StatusInternalServerError,
	} {
		waits := map[string]bool{}
		for range 50 {
			w := httptest.NewRecorder()
			rpc.HTTPRefusal(w, status.Error(code, "isobar: the reason"))
			if w.Code != want || !strings.Contains(w.Body.String(), "isobar: the reason") {
				t.Fatalf("%v: %d %s, want %d", code, w.Code, w.Body, want)
			}
			waits[w.Header().Get("Retry-After")] = true
		}
		if code != codes.ResourceExhausted && code != codes.Unavailable {
			if len(waits) != 1 || !waits[""] {
				t.Errorf("%v: told to wait %v", code, waits)
			}
			continue
		}
		for w := range waits {
			if s, err := strconv.Atoi(w); err != nil || s < 1 || s > 10 {
				t.Errorf("%v: told to wait %q", code, w)
			}
		}
		if len(waits) < 3 {
			t.Errorf("%v: all are told to wait %v", code, waits)
		}
	}
}

// TestBodyThatIsCutOff: the server knows of it behind a writer of our own, too, so
// that it doesn't take the rest of the body for the next request, nor close the
// connection before the client has the answer.
func TestBodyThatIsCutOff(t *testing.T) {
	const limit = 4 << 20
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w = around{around{w}}
		if _, code, err := rpc.ReadPoll(w, r); err != nil {
			http.Error(w, err.Error(), code)
		}
	}))
	defer srv.Close()
	for size, want := range map[int]int{limit: http.StatusOK, limit + 1000: http.StatusRequestEntityTooLarge, 2 * limit: http.StatusRequestEntityTooLarge} {
		resp, err := srv.Client().Post(srv.URL, "application/json", strings.NewReader(strings.Repeat(" ", size)))
		if err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want || resp.Close != (want != http.StatusOK) {
			t.Errorf("%d bytes: %s, and the connection closes: %v", size, resp.Status, resp.Close)
		}
	}
}

type around struct{ http.ResponseWriter }

func (w around) Unwrap() http.ResponseWriter { return w.ResponseWriter }
