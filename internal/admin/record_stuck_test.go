package admin

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/testhelp/bubble"
)

// TestRecordOfAStuckServer: one that takes the request and says nothing, or that
// stops in the middle of its answer, is not waited for without end.
func TestRecordOfAStuckServer(t *testing.T) {
	const length = 3 * time.Second
	for _, tt := range []struct {
		name   string
		begins bool
		after  time.Duration
		says   string
	}{
		{"does not begin", false, recordPatience, "stuck.example:18080 has not begun to answer within 30s"},
		{"does not end", true, length + recordPatience, context.DeadlineExceeded.Error()},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				began := time.Now()
				remote, err := NewRemote("http://stuck.example:18080")
				if err != nil {
					t.Fatal(err)
				}
				remote.client.Transport = stuck{begins: tt.begins}
				ctx, enough := context.WithTimeout(t.Context(), time.Hour)
				defer enough()
				stream, err := remote.Record(ctx, length)
				if tt.begins {
					if err != nil {
						t.Fatal(err)
					}
					_, err = io.ReadAll(stream)
					err = errors.Join(err, stream.Close())
				}
				if err == nil || !strings.Contains(err.Error(), tt.says) {
					t.Errorf("error %v, want %q", err, tt.says)
				}
				if took := time.Since(began); took != tt.after {
					t.Errorf("it took %s, want %s", took, tt.after)
				}
			})
		})
	}
}

// stuck is the way to a server that hangs.
type stuck struct{ begins bool }

// RoundTrip implements http.RoundTripper.
func (s stuck) RoundTrip(r *http.Request) (*http.Response, error) {
	if !s.begins {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	body, end := io.Pipe()
	context.AfterFunc(r.Context(), func() { _ = end.CloseWithError(r.Context().Err()) }) // it never fails
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {mediaTrace}}, Body: body}, nil
}
