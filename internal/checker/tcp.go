package checker

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
)

// tcpCheck is what all TCP probes of a check share.
type tcpCheck struct {
	link    link
	payload payload
}

func newTCP(m *corev3.HealthCheck_TcpHealthCheck, l link) (func(Target) (Prober, error), error) {
	if m.GetProxyProtocolConfig() != nil {
		return nil, errors.New("tcp_health_check.proxy_protocol_config: not supported")
	}
	p, err := newPayload(m.GetSend(), m.GetReceive())
	if err != nil {
		return nil, fmt.Errorf("tcp_health_check.%w", err)
	}
	c := &tcpCheck{link: l, payload: p}
	return func(t Target) (Prober, error) { return &tcpProber{check: c, target: t}, nil }, nil
}

// reusable reports whether a connection is good for a second probe. Servers that
// speak first do so once: who sends nothing would wait in vain for a second
// greeting, and every other probe would fail.
func (c *tcpCheck) reusable() bool {
	return c.link.reuse && len(c.payload.receive) > 0 && len(c.payload.send) > 0
}

// tcpProber probes one endpoint over TCP.
type tcpProber struct {
	check  *tcpCheck
	target Target
	conn   net.Conn
}

// Probe connects, sends, and reads until all that is expected has come. As in
// Envoy a check that expects nothing passes once it is connected, and then
// closes the connection.
func (p *tcpProber) Probe(ctx context.Context) (Outcome, error) {
	reused := p.conn != nil
	got, err := p.exchange(ctx)
	if err != nil && reused && got == 0 && !timedOut(ctx, err) {
		// The server may have closed the connection while it was idle.
		p.Close()
		_, err = p.exchange(ctx)
	}
	if err != nil {
		p.Close()
		return lost(ctx, err)
	}
	if !p.check.reusable() {
		p.Close()
	}
	return Passed, nil
}

// exchange returns how many bytes came.
func (p *tcpProber) exchange(ctx context.Context) (got int, err error) {
	if p.conn == nil {
		if p.conn, err = p.check.link.open(ctx, p.target.Network, p.target.Address); err != nil {
			p.conn = nil
			return 0, err
		}
	}
	stop, err := bound(ctx, p.conn)
	if err != nil {
		return 0, err
	}
	defer stop()
	if send := p.check.payload.send; len(send) > 0 {
		if _, err := p.conn.Write(send); err != nil {
			return 0, err
		}
	}
	return p.receive()
}

// bound ends reads and writes of the connection with the context. Until stop is
// called, the end of the context closes the connection: a deadline alone would
// let a probe outlive a checker that is stopped.
func bound(ctx context.Context, conn net.Conn) (stop func() bool, err error) {
	deadline, _ := ctx.Deadline() // none is the zero time, which sets none
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, err
	}
	return context.AfterFunc(ctx, func() { _ = conn.Close() }), nil
}

func (p *tcpProber) receive() (int, error) {
	want := &p.check.payload
	if len(want.receive) == 0 {
		return 0, nil
	}
	var data []byte
	chunk := make([]byte, 1024)
	for len(data) < mostResponse {
		n, err := p.conn.Read(chunk)
		data = append(data, chunk[:n]...)
		if want.found(data) {
			return len(data), nil
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = fmt.Errorf("the connection closed after %d bytes, before the expected payload: %w", len(data), err)
			}
			return len(data), err
		}
	}
	return len(data), errors.New("no expected payload within 1 MiB")
}

// Close lets go of the connection.
func (p *tcpProber) Close() {
	if p.conn != nil {
		_ = p.conn.Close() // nothing was sent that closing could lose
		p.conn = nil
	}
}

// Bounds of what is sent and read for one probe.
const (
	mostPayload  = 64 << 10 // of what is sent, and of what is looked for
	mostReceive  = 64       // blocks looked for
	mostResponse = 1 << 20  // bytes read of an answer
)

// payload is what a check sends and looks for.
type payload struct {
	send    []byte
	receive [][]byte
}

func newPayload(send *corev3.HealthCheck_Payload, receive []*corev3.HealthCheck_Payload) (payload, error) {
	var p payload
	var err error
	if send != nil {
		if p.send, err = payloadBytes(send); err != nil {
			return p, fmt.Errorf("send: %w", err)
		}
	}
	if len(receive) > mostReceive {
		return p, fmt.Errorf("receive: %d blocks: want at most %d", len(receive), mostReceive)
	}
	sum := 0
	for i, r := range receive {
		b, err := payloadBytes(r)
		if err != nil {
			return p, fmt.Errorf("receive[%d]: %w", i, err)
		}
		sum += len(b)
		p.receive = append(p.receive, b)
	}
	if sum > mostPayload || len(p.send) > mostPayload {
		return p, fmt.Errorf("send, receive: want at most %d bytes each", mostPayload)
	}
	return p, nil
}

func payloadBytes(m *corev3.HealthCheck_Payload) ([]byte, error) {
	var b []byte
	switch kind := m.GetPayload().(type) {
	case *corev3.HealthCheck_Payload_Text:
		var err error
		if b, err = hex.DecodeString(kind.Text); err != nil {
			return nil, errors.New("text: want an even number of hexadecimal digits")
		}
	case *corev3.HealthCheck_Payload_Binary:
		b = kind.Binary
	}
	if len(b) == 0 {
		return nil, errors.New("an empty payload")
	}
	return b, nil
}

// found reports whether all blocks stand in data, in order, with anything
// between them.
func (p *payload) found(data []byte) bool {
	for _, want := range p.receive {
		i := bytes.Index(data, want)
		if i < 0 {
			return false
		}
		data = data[i+len(want):]
	}
	return true
}
