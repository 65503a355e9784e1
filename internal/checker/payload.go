package checker

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
)

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

// found tells whether all blocks stand in data, in order, with anything
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
