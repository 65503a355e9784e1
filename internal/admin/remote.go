package admin

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"
)

// maxAnswerBytes bounds what a Remote reads of an answer.
const maxAnswerBytes = 256 << 20

// remoteTimeout is longer than the longest a write waits for its plan.
const remoteTimeout = 30 * time.Second

// ErrAddress says that an admin address can't be used.
var ErrAddress = errors.New("bad admin address")

// StatusError is an answer with a status other than success.
type StatusError struct {
	Code    int
	Problem Problem
}

// Error tells what the server said, with the remedy.
func (e *StatusError) Error() string {
	text := e.Problem.Error
	if text == "" {
		text = http.StatusText(e.Code)
	}
	if e.Problem.Place != "" {
		text += " (" + e.Problem.Place + ")"
	}
	if e.Problem.Fix != "" {
		text += ": " + e.Problem.Fix
	}
	return text
}

// Remote speaks with the admin interface of a running server.
type Remote struct {
	base   *url.URL
	client *http.Client
	token  string
	tls    *tls.Config        // how https addresses are spoken with; nil = as the system does
	hint   func(error) string // what to do about a connection that failed; "" = it does not know
	slow   time.Duration      // after which waits is called, with the host that has not answered
	waits  func(host string)  // nil = no message
}

// RemoteOption is how a Remote differs.
type RemoteOption func(*Remote)

// WithTLS sets how https addresses are spoken with.
func WithTLS(c *tls.Config) RemoteOption {
	return func(r *Remote) {
		r.tls = c
		r.client.Transport = &http.Transport{
			Proxy: http.ProxyFromEnvironment, TLSClientConfig: c, ForceAttemptHTTP2: true, TLSHandshakeTimeout: remoteTimeout,
		}
	}
}

// WithHint sets what is said of connections that fail; "" where it does not know.
func WithHint(hint func(error) string) RemoteOption { return func(r *Remote) { r.hint = hint } }

// WithWait sets what is called, once for each request, where a server has not answered after a while.
func WithWait(after time.Duration, waits func(host string)) RemoteOption {
	return func(r *Remote) { r.slow, r.waits = after, waits }
}

// WithToken sets the bearer token that is shown.
func WithToken(token string) RemoteOption { return func(r *Remote) { r.token = token } }

// NewRemote takes an address such as http://127.0.0.1:18080; the scheme may be
// left out.
func NewRemote(address string, options ...RemoteOption) (*Remote, error) {
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	base, err := url.Parse(address)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrAddress, err)
	case base.Scheme != "http" && base.Scheme != "https", base.Host == "":
		return nil, fmt.Errorf("%w %q: want http://HOST:PORT", ErrAddress, address)
	}
	r := &Remote{base: base, client: &http.Client{Timeout: remoteTimeout}, hint: func(error) string { return "" }}
	for _, o := range options {
		o(r)
	}
	if r.token != "" {
		if base.Scheme == "http" && !onLoopback(base.Hostname()) {
			return nil, fmt.Errorf("%w %q: a token would go to another machine in plaintext: use https://", ErrAddress, address)
		}
		// A redirect must not carry the token, or a write, elsewhere.
		r.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	}
	return r, nil
}

func onLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || (err == nil && ip.IsLoopback())
}

func (r *Remote) get(ctx context.Context, path string, query url.Values, out any) error {
	u := r.base.JoinPath(path)
	u.RawQuery = query.Encode()
	return r.do(ctx, http.MethodGet, u, http.NoBody, out)
}

// unanswered says what may be the matter where there was no answer.
func (r *Remote) unanswered(ctx context.Context, host string, err error) error {
	hint := r.hint(err)
	if hint == "" && r.tls != nil {
		if refusal := tlsRefusal(ctx, host, r.tls); refusal != nil {
			hint = r.hint(refusal)
		}
	}
	if hint != "" {
		return fmt.Errorf("%w: %s", err, hint)
	}
	if timeout := (net.Error)(nil); errors.As(err, &timeout) && timeout.Timeout() && accepts(ctx, host) {
		return fmt.Errorf("%w: %s accepts connections and does not answer: its process is stopped, or has no processor time", err, host)
	}
	if strings.Contains(err.Error(), "malformed HTTP response") || greetsAsHTTP2(ctx, host) {
		return fmt.Errorf("%s expects gRPC or TLS: the admin interface is at admin.listen, 127.0.0.1:18080 by default, and https:// where it has tls", host)
	}
	return fmt.Errorf("%w: is isobar running there, and is this its admin address?", err)
}

// tlsRefusal is why a server refuses a TLS connection, nil where it does not, or does not say.
// With TLS 1.3 a server refuses the client's certificate after the client's handshake has ended:
// its alert is lost where the request is on its way already, and not where nothing is sent.
func tlsRefusal(ctx context.Context, host string, config *tls.Config) error {
	ctx, cancel := context.WithTimeout(ctx, greetingWait)
	defer cancel()
	conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", host)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	deadline, _ := ctx.Deadline()
	if conn.SetReadDeadline(deadline) != nil {
		return nil
	}
	_, err = conn.Read(make([]byte, 1))
	return err
}

// greetsAsHTTP2 reports whether a listener speaks first, with the settings of
// HTTP/2, as servers of gRPC do. What the transport makes of such a greeting
// depends on when it comes: before the request, behind it, or lost with a reset.
func greetsAsHTTP2(ctx context.Context, host string) bool {
	ctx, cancel := context.WithTimeout(ctx, greetingWait)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", host)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	deadline, _ := ctx.Deadline()
	if conn.SetReadDeadline(deadline) != nil {
		return false
	}
	var frame [9]byte // length 3, type 1, flags 1, stream 4
	_, err = io.ReadFull(conn, frame[:])
	const settings = 4
	return err == nil && frame[3] == settings && [4]byte(frame[5:]) == [4]byte{}
}

// accepts reports whether anything takes connections at an address: the kernel does so for a
// process that is stopped. The context may have ended.
func accepts(ctx context.Context, host string) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), greetingWait)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", host)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// greetingWait is how long a failed command waits for a greeting.
const greetingWait = time.Second

// do sends a request and reads its answer, of whatever success.
func (r *Remote) do(ctx context.Context, method string, u *url.URL, body io.Reader, out any) error {
	req, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return err
	}
	if r.token != "" {
		req.Header.Set("Authorization", "Bearer "+r.token)
	}
	if r.waits != nil {
		defer time.AfterFunc(r.slow, func() { r.waits(u.Host) }).Stop()
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return r.unanswered(ctx, u.Host, err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes))
	if err != nil {
		return fmt.Errorf("reading the answer of %s: %w", r.base.Host, err)
	}
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusAccepted {
		return refusal(resp.StatusCode, answer)
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return fmt.Errorf("%s does not answer as an isobar admin interface: %w", r.base.Host, err)
	}
	return nil
}
