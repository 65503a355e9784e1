package rpc_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isobar-xds/isobar/internal/rpc"
)

// TestRefusalOfAnEndedPoll: a poll whose context the server ended, as at the limits of its memory, may come again.
func TestRefusalOfAnEndedPoll(t *testing.T) {
	for _, err := range []error{context.Canceled, fmt.Errorf("waiting for a turn: %w", context.DeadlineExceeded)} {
		w := httptest.NewRecorder()
		rpc.HTTPRefusal(w, err)
		if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
			t.Errorf("%v: %d, Retry-After %q, want %d and a time", err, w.Code, w.Header().Get("Retry-After"), http.StatusServiceUnavailable)
		}
	}
}

// keeper ends a request once it keeps more than so many bytes.
type keeper struct {
	most int
	end  context.CancelFunc
}

func (k keeper) Waits(int) {}

func (k keeper) Keeps(bytes int) {
	if bytes > k.most {
		k.end()
	}
}

// endless is a body that does not notice that its request was ended.
type endless struct{ read int }

func (e *endless) Read(b []byte) (int, error) {
	e.read += len(b)
	return len(b), nil
}

// TestEndedPollsKeepNoMore: a poll that is ended because it keeps too much takes no larger buffer for the rest.
func TestEndedPollsKeepNoMore(t *testing.T) {
	const most = 64 << 10
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	body := &endless{}
	r := httptest.NewRequestWithContext(rpc.WithUnread(ctx, keeper{most, cancel}), http.MethodPost, "/", body)
	_, code, err := rpc.ReadPoll(httptest.NewRecorder(), r)
	if body.read > most || code != http.StatusServiceUnavailable || err == nil {
		t.Errorf("%d bytes of the body were read, want at most %d; %d, %v", body.read, most, code, err)
	}
}

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

// TestCompressedPolls: bodies that gzip compressed are read, and bounded by what they become.
// Other encodings are refused with what to send instead.
func TestCompressedPolls(t *testing.T) {
	const limit = 4 << 20
	packed := func(text string) string {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = z.Write([]byte(text))
		_ = z.Close()
		return b.String()
	}
	const request = `{"type_url": "x"}`
	for name, tt := range map[string]struct {
		encoding, body string
		want           int
		says           string
	}{
		"plain":                 {"", request, http.StatusOK, request},
		"identity":              {"identity", request, http.StatusOK, request},
		"gzip":                  {"gzip", packed(request), http.StatusOK, request},
		"in capitals":           {"GZIP", packed(request), http.StatusOK, request},
		"as large as may be":    {"gzip", packed(strings.Repeat(" ", limit)), http.StatusOK, " "},
		"a bomb":                {"gzip", strings.Repeat(packed(strings.Repeat(" ", limit)), 100), http.StatusRequestEntityTooLarge, "too large"},
		"larger before it":      {"gzip", strings.Repeat("x", limit+1), http.StatusRequestEntityTooLarge, "too large"},
		"no gzip":               {"gzip", request, http.StatusBadRequest, "the body is not gzip"},
		"cut off":               {"gzip", packed(request)[:30], http.StatusBadRequest, "the body is damaged gzip"},
		"empty":                 {"gzip", "", http.StatusBadRequest, "the body is not gzip"},
		"another encoding":      {"br", request, http.StatusUnsupportedMediaType, "send gzip, or do not compress"},
		"one encoding on other": {"gzip, br", request, http.StatusUnsupportedMediaType, "send gzip, or do not compress"},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodPost, "/v3/discovery:endpoints", strings.NewReader(tt.body))
			r.Header.Set("Content-Encoding", tt.encoding)
			w := httptest.NewRecorder()
			body, code, err := rpc.ReadPoll(w, r)
			said := string(body)
			if err != nil {
				said = err.Error()
			}
			if code != tt.want || (err == nil) != (code == http.StatusOK) || !strings.Contains(said, tt.says) || strings.Count(said, "EOF") > 1 {
				t.Errorf("%d %.200s, want %d %s", code, said, tt.want, tt.says)
			}
			if offers := w.Header().Get("Accept-Encoding"); (code == http.StatusUnsupportedMediaType) != (offers == "gzip") {
				t.Errorf("%d, Accept-Encoding: %q", code, offers)
			}
		})
	}
}

type around struct{ http.ResponseWriter }

func (w around) Unwrap() http.ResponseWriter { return w.ResponseWriter }
