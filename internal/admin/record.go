package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	mediaTrace = "application/x-isobar-trace"
	// MaxRecording bounds how long one recording may take.
	MaxRecording = 24 * time.Hour
	// recordPatience is how long a write of a recording may take.
	recordPatience = 30 * time.Second
)

// postRecord answers POST /v1/record: everything that is decided from now on,
// and from what, as a trace that goes on for as long as `for` says. It changes
// nothing, so that a read-only interface answers too; but it takes work and says
// everything, so that it needs the token where there is one.
func (s *Server) postRecord(w http.ResponseWriter, r *http.Request) {
	if err := http.NewCrossOriginProtection().Check(r); err != nil {
		fail(w, http.StatusForbidden, Problem{Error: "the request comes from another origin: " + err.Error(), Place: r.Header.Get("Origin")})
		return
	}
	length, err := time.ParseDuration(r.URL.Query().Get("for"))
	if err != nil || length <= 0 || length > MaxRecording {
		fail(w, http.StatusBadRequest, Problem{
			Error: "for, the length of the recording, must be a duration above 0 and at most " + MaxRecording.String(), Place: "for", Fix: "ask for /v1/record?for=10m",
		})
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), length)
	defer cancel()
	out := &patient{w: w, control: http.NewResponseController(w)}
	// The limits of other requests are too short for this one.
	if err := out.control.SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		fail(w, http.StatusInternalServerError, Problem{Error: err.Error()})
		return
	}
	if err := s.opts.Recorder.Record(ctx, out); err != nil && !out.begun {
		w.Header().Set("Retry-After", "60")
		fail(w, http.StatusServiceUnavailable, Problem{Error: "recording: " + err.Error(), Fix: "try again later"})
	}
}

// patient writes to a client that has to take each write in time.
type patient struct {
	w       http.ResponseWriter
	control *http.ResponseController
	begun   bool
}

// Write implements io.Writer.
func (p *patient) Write(b []byte) (int, error) {
	if !p.begun {
		p.begun = true
		p.w.Header().Set("Content-Type", mediaTrace)
	}
	if err := p.control.SetWriteDeadline(time.Now().Add(recordPatience)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return 0, err
	}
	n, err := p.w.Write(b)
	if err == nil {
		err = p.control.Flush()
	}
	return n, err
}

// Record asks for a trace of a length and gives it as it comes, to be closed. A
// server that does not begin, or does not end when it should, is given up.
func (r *Remote) Record(ctx context.Context, length time.Duration) (io.ReadCloser, error) {
	bounded, cancel := context.WithTimeout(ctx, length+recordPatience)
	stream, err := r.record(ctx, bounded, cancel, length)
	if err != nil {
		cancel()
		return nil, err
	}
	return &recordStream{ReadCloser: stream, end: cancel}, nil
}

// recordStream ends its request when it is closed.
type recordStream struct {
	io.ReadCloser

	end context.CancelFunc
}

// Close implements io.Closer.
func (s *recordStream) Close() error {
	defer s.end()
	return s.ReadCloser.Close()
}

// record sends the request within bounded, which cancel ends; ctx is the caller's.
func (r *Remote) record(ctx, bounded context.Context, cancel func(), length time.Duration) (io.ReadCloser, error) {
	u := r.base.JoinPath("/v1/record")
	u.RawQuery = url.Values{"for": {length.String()}}.Encode()
	req, err := http.NewRequestWithContext(bounded, http.MethodPost, u.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	if r.token != "" {
		req.Header.Set("Authorization", "Bearer "+r.token)
	}
	client := *r.client
	client.Timeout = 0 // bounded has it
	begin := time.AfterFunc(recordPatience, cancel)
	resp, err := client.Do(req)
	late := !begin.Stop()
	if err != nil {
		if late && ctx.Err() == nil {
			return nil, fmt.Errorf("%s has not begun to answer within %s: its process may be stuck", req.URL.Host, recordPatience)
		}
		return nil, r.unanswered(ctx, req.URL.Host, err)
	}
	if resp.StatusCode == http.StatusOK && resp.Header.Get("Content-Type") == mediaTrace {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxHealthBytes<<4))
	if err != nil {
		return nil, fmt.Errorf("reading the answer of %s: %w", r.base.Host, err)
	}
	if resp.StatusCode == http.StatusOK {
		return nil, fmt.Errorf("%s does not answer as an isobar admin interface", r.base.Host)
	}
	return nil, refusal(resp.StatusCode, answer)
}

// refusal makes an error of an answer that is none.
func refusal(code int, answer []byte) error {
	e := &StatusError{Code: code}
	if json.Unmarshal(answer, &e.Problem) != nil || e.Problem.Error == "" { // not one of ours
		first, _, _ := strings.Cut(string(answer), "\n")
		e.Problem = Problem{Error: http.StatusText(code), Place: oneLine(first)}
		if strings.Contains(first, "HTTP request to an HTTPS server") { // Go's own words, before anything of ours is asked
			e.Problem.Fix = "write https:// before the address"
		}
	}
	return e
}
