package admin_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/admin"
)

// TestRecord: a read-only interface streams what is recorded until the time is
// over, and says what is wrong with a request or why there is no recording.
func TestRecord(t *testing.T) {
	srv := start(t, newWorld(), func(o *admin.Options) {
		o.Writable = false
		o.Token = func(presented string) bool { return presented == "s3cret" }
		o.Recorder = recorder(func(ctx context.Context, w io.Writer) error {
			if _, err := io.WriteString(w, "first,"); err != nil {
				return err
			}
			<-ctx.Done()
			_, err := io.WriteString(w, "last")
			return err
		})
	})
	const token = "Bearer s3cret"
	for _, tt := range []struct {
		query, authorization, origin string
		want                         int
		says                         string
	}{
		{"?for=10ms", token, "", http.StatusOK, "first,last"},
		{"?for=10ms", "", "", http.StatusUnauthorized, "token"},
		{"?for=10ms", token, "http://evil.example", http.StatusForbidden, "another origin"},
		{"", token, "", http.StatusBadRequest, "for=10m"},
		{"?for=-1s", token, "", http.StatusBadRequest, "above 0"},
		{"?for=25h", token, "", http.StatusBadRequest, "at most 24h0m0s"},
	} {
		headers := []string{"Authorization", tt.authorization}
		if tt.origin != "" {
			headers = append(headers, "Origin", tt.origin)
		}
		if a := do(t, srv, "POST", "/v1/record"+tt.query, "", headers...); a.code != tt.want || !strings.Contains(a.body, tt.says) {
			t.Errorf("%q: %d %s, want %d and %q", tt.query, a.code, a.body, tt.want, tt.says)
		}
	}
	if a := do(t, srv, "GET", "/v1/record?for=10ms", "", "Authorization", token); a.code != http.StatusMethodNotAllowed {
		t.Errorf("GET: %d", a.code)
	}
	remote, err := admin.NewRemote(srv.URL, admin.WithToken("s3cret"))
	if err != nil {
		t.Fatal(err)
	}
	stream, err := remote.Record(t.Context(), 10*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stream.Close() }()
	if got, err := io.ReadAll(stream); err != nil || string(got) != "first,last" {
		t.Errorf("read %q, %v", got, err)
	}
}

// TestRecordIsRefused before anything of it was sent.
func TestRecordIsRefused(t *testing.T) {
	srv := start(t, newWorld(), func(o *admin.Options) {
		o.Recorder = recorder(func(context.Context, io.Writer) error { return errors.New("too many recordings are in progress") })
	})
	remote, err := admin.NewRemote(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	_, err = remote.Record(t.Context(), time.Second)
	if refused, ok := errors.AsType[*admin.StatusError](err); !ok || refused.Code != http.StatusServiceUnavailable || !strings.Contains(err.Error(), "in progress") {
		t.Errorf("%v", err)
	}
	other, err := admin.NewRemote(start(t, newWorld(), func(*admin.Options) {}).URL)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Record(t.Context(), time.Second); err == nil || !strings.Contains(err.Error(), "/v1/record") {
		t.Errorf("a server that can't record: %v", err)
	}
}
