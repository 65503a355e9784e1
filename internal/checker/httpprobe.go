package checker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// httpProber probes one endpoint over HTTP, on one connection that it owns.
type httpProber struct {
	check   *httpCheck
	target  Target
	request *http.Request // copied for each probe
	conn    *http.ClientConn
}

func (c *httpCheck) prober(t Target) (Prober, error) {
	u := *c.url
	u.Scheme, u.Host = c.scheme, t.Address
	if t.Network == "unix" {
		u.Host = "localhost"
	}
	return &httpProber{check: c, target: t, request: &http.Request{
		Method: c.method, URL: &u, Host: t.authority(c.host), Header: c.header,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}}, nil
}

// Probe sends the request and reads the whole answer.
func (p *httpProber) Probe(ctx context.Context) (Outcome, error) {
	reused := p.conn != nil && p.conn.Err() == nil
	resp, err := p.roundTrip(ctx) //nolint:bodyclose // judge closes it
	if err != nil && reused && !timedOut(ctx, err) {
		// The server may have closed the connection while it was idle, which
		// says nothing about its health.
		p.Close()
		resp, err = p.roundTrip(ctx) //nolint:bodyclose // judge closes it
	}
	if err != nil {
		p.Close()
		return lost(ctx, err)
	}
	outcome, err := p.judge(ctx, resp)
	if !p.check.reuse || outcome.lostConnection() || resp.Close {
		p.Close()
	}
	return outcome, err
}

func (p *httpProber) roundTrip(ctx context.Context) (*http.Response, error) {
	if p.conn != nil && p.conn.Err() != nil {
		p.Close()
	}
	if p.conn == nil {
		conn, err := p.check.transport.NewClientConn(context.WithValue(ctx, targetKey{}, &p.target), p.check.scheme, hostPort(p.request.URL))
		if err != nil {
			return nil, err
		}
		p.conn = conn
	}
	req := p.request.WithContext(ctx)
	if body := p.check.payload.send; len(body) > 0 {
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	return p.conn.RoundTrip(req)
}

// hostPort is what the connection is named after; a pipe's has no port.
func hostPort(u *url.URL) string {
	if u.Port() == "" {
		return u.Host + ":80"
	}
	return u.Host
}

// judge reads the answer and decides by status, body and service name.
func (p *httpProber) judge(ctx context.Context, resp *http.Response) (Outcome, error) {
	defer resp.Body.Close()
	c := p.check
	var body []byte
	if resp.StatusCode == http.StatusSwitchingProtocols { // what follows is no answer, and may never end
		p.Close()
	} else {
		var err error
		if body, err = io.ReadAll(io.LimitReader(resp.Body, mostResponse+1)); err != nil {
			return lost(ctx, fmt.Errorf("reading the answer: %w", err))
		}
	}
	if len(body) > mostResponse {
		p.Close() // what is left is not worth reading
	}
	if c.look > 0 && len(body) > c.look {
		body = body[:c.look]
	}
	switch status := resp.StatusCode; {
	case !within(status, c.expected) && within(status, c.retriable):
		return Broken, fmt.Errorf("status %d, which is retriable", status)
	case !within(status, c.expected):
		return Failed, fmt.Errorf("status %d", status)
	case !c.payload.found(body):
		return Failed, errors.New("the response body lacks the expected payload")
	case c.service != nil && !c.service(resp.Header.Get(serviceHeader)):
		return Failed, fmt.Errorf("the response is from service %q", short(resp.Header.Get(serviceHeader)))
	}
	return Passed, nil
}

// Close lets go of the connection.
func (p *httpProber) Close() {
	if p.conn != nil {
		_ = p.conn.Close() // nothing was sent that closing could lose
		p.conn = nil
	}
}
