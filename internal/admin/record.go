package admin

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
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
func (s *processAPI) postRecord(w http.ResponseWriter, r *http.Request) {
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
