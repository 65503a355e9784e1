package checker

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"

	redisv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/health_checkers/redis/v3"
)

// redisCheck is what all Redis probes of a check share.
type redisCheck struct {
	link    link
	key     string // empty = PING
	command []byte // in the Redis serialization protocol (RESP)
}

func newRedis(m *redisv3.Redis, l link) (func(Target) (Prober, error), error) {
	if m.GetAwsIam() != nil {
		return nil, errors.New("redis: aws_iam is not supported")
	}
	if len(m.GetKey()) > mostPayload {
		return nil, fmt.Errorf("redis: key: want at most %d bytes", mostPayload)
	}
	c := &redisCheck{link: l, key: m.GetKey(), command: redisCommand("PING")}
	if c.key != "" {
		c.command = redisCommand("EXISTS", c.key)
	}
	return func(t Target) (Prober, error) { return &redisProber{check: c, target: t}, nil }, nil
}

// redisProber probes one endpoint with PING or EXISTS.
type redisProber struct {
	check   *redisCheck
	target  Target
	conn    net.Conn
	replies *bufio.Reader
}

// Probe asks. A key that exists means that the instance is taken out of
// service, as in Envoy.
func (p *redisProber) Probe(ctx context.Context) (Outcome, error) {
	reused := p.conn != nil
	outcome, err := p.ask(ctx)
	if outcome == Broken && reused {
		// The server may have closed the connection while it was idle.
		p.Close()
		outcome, err = p.ask(ctx)
	}
	if !p.check.link.reuse || outcome.lostConnection() {
		p.Close()
	}
	return outcome, err
}

func (p *redisProber) ask(ctx context.Context) (Outcome, error) {
	reply, err := p.exchange(ctx)
	switch {
	case err != nil:
		return lost(ctx, err)
	case reply.kind == '-':
		return Failed, fmt.Errorf("redis: %s", short(reply.text))
	case p.check.key == "" && reply != redisReply{'+', "PONG"}:
		return Failed, fmt.Errorf("redis: PING was answered with %q, not PONG", short(reply.text))
	case p.check.key != "" && reply == redisReply{':', "1"}:
		return Failed, fmt.Errorf("the key %q exists", short(p.check.key))
	case p.check.key != "" && reply != redisReply{':', "0"}:
		return Failed, fmt.Errorf("redis: EXISTS was answered with %q, not 0 or 1", short(reply.text))
	}
	return Passed, nil
}

// exchange sends the command and reads one reply, over a connection that it
// opens if there is none.
func (p *redisProber) exchange(ctx context.Context) (redisReply, error) {
	if p.conn == nil {
		conn, err := p.check.link.open(ctx, p.target.Network, p.target.Address)
		if err != nil {
			return redisReply{}, err
		}
		p.conn, p.replies = conn, bufio.NewReaderSize(conn, mostRedisReply)
	}
	stop, err := bound(ctx, p.conn)
	if err != nil {
		return redisReply{}, err
	}
	defer stop()
	if _, err := p.conn.Write(p.check.command); err != nil {
		return redisReply{}, err
	}
	return readRedisReply(p.replies)
}

// Close closes the connection.
func (p *redisProber) Close() {
	if p.conn != nil {
		_ = p.conn.Close() // nothing was sent that closing could lose
		p.conn, p.replies = nil, nil
	}
}

// redisCommand encodes a command as RESP does: an array of bulk strings.
func redisCommand(words ...string) []byte {
	b := fmt.Appendf(nil, "*%d\r\n", len(words))
	for _, word := range words {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(word), word)
	}
	return b
}

// redisReply is a reply of one line: a simple string (+), an error (-) or an
// integer (:), the only ones that PING and EXISTS have.
type redisReply struct {
	kind byte
	text string
}

// mostRedisReply is the longest reply that is read, in bytes. Errors of Redis
// have some hundred.
const mostRedisReply = 4 << 10

// readRedisReply reads one reply. It returns an error if the peer does not speak
// RESP; the connection is then of no further use.
func readRedisReply(r *bufio.Reader) (redisReply, error) {
	line, err := r.ReadSlice('\n')
	if err != nil {
		return redisReply{}, fmt.Errorf("redis: reply: %w", err)
	}
	line, terminated := bytes.CutSuffix(line, []byte("\r\n"))
	if !terminated || len(line) == 0 {
		return redisReply{}, errors.New("redis: reply: not of the Redis protocol")
	}
	reply := redisReply{kind: line[0], text: string(line[1:])}
	switch reply.kind {
	case '+', '-':
		return reply, nil
	case ':':
		if _, err := strconv.ParseInt(reply.text, 10, 64); err == nil {
			return reply, nil
		}
	}
	return redisReply{}, fmt.Errorf("redis: reply: want a simple string, an error or an integer, got %q", short(string(line)))
}
