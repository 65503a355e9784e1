package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isobar-xds/isobar/bench/internal/rawclient"
)

// Paths of the listener for REST.
const (
	endpointsPath = "/v3/discovery:endpoints"
	clustersPath  = "/v3/discovery:clusters"
	checksPath    = "/v3/discovery:health_check"
)

const (
	restMost = 200                    // connections of an attacker at once
	restBody = 4<<20 - 1<<10          // just below what the server accepts
	restSlow = 100 * time.Millisecond // before an attacker connects again
)

// poller is an attacker of the listener for REST: one address.
type poller struct {
	ctx     context.Context //nolint:containedctx // of the attack, which the attacker is made for
	way     *rawclient.Way
	address string
	number  int
	opened  *atomic.Int64
	asked   atomic.Int64 // requests, so that each may differ
}

// parallel calls f with one connection after the other, n of them at a time, until the attack ends.
func (p *poller) parallel(n int, f func(conn net.Conn) error) {
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			for p.ctx.Err() == nil {
				if conn, err := p.way.Dial(p.ctx, p.address, "http/1.1"); err == nil {
					p.opened.Add(1)
					stop := context.AfterFunc(p.ctx, func() { _ = conn.Close() })
					_ = f(conn) // the server may end what it likes
					stop()
					_ = conn.Close()
				}
				select { // as long as a library would at least
				case <-p.ctx.Done():
				case <-time.After(restSlow):
				}
			}
		})
	}
	all.Wait()
}

// held sends something and then keeps the connection, as long as the server does.
func (p *poller) held(data []byte) func(conn net.Conn) error {
	return func(conn net.Conn) error {
		if _, err := conn.Write(data); err != nil {
			return err
		}
		_, err := io.Copy(io.Discard, conn)
		return err
	}
}

// endlessly sends a head, then the same data again and again, and reads nothing.
func endlessly(head, data []byte) func(conn net.Conn) error {
	return func(conn net.Conn) error {
		_, err := conn.Write(head)
		for err == nil {
			_, err = conn.Write(data)
		}
		return err
	}
}

// polls sends requests and reads the answers, one after the other.
func (p *poller) polls(request func(number int64) []byte) func(conn net.Conn) error {
	return func(conn net.Conn) error {
		in := bufio.NewReader(conn)
		for {
			if _, err := conn.Write(request(p.asked.Add(1))); err != nil {
				return err
			}
			resp, err := http.ReadResponse(in, nil)
			if err != nil {
				return err
			}
			_, err = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			if err != nil {
				return err
			}
		}
	}
}

// post is a request; headers end with a line break each.
func post(path, headers string, body []byte) []byte {
	return append(postHead(path, headers, len(body)), body...)
}

func postHead(path, headers string, size int) []byte {
	return fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%s\r\n", path, size, headers)
}

// asks is a request for names of a client with an id, in a zone.
func asks(id, zone string, names []string) []byte {
	return fmt.Appendf(nil, `{"node": {"id": %q, "cluster": "attackers", "locality": {"region": "us", "zone": %q}}, "resource_names": ["%s"]}`,
		id, zone, strings.Join(names, `", "`))
}

func (p *poller) names(number int64, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("%d-%d-%d", p.number, number, i)
	}
	return out
}

// repeated is a JSON text that begins and ends so, and repeats a part in between as long as it
// stays below what the server accepts.
func repeated(begin, part, end string) []byte {
	n := (restBody - len(begin) - len(end)) / len(part)
	text := begin + strings.Repeat(part, n)
	return []byte(strings.TrimSuffix(text, ",") + end)
}

// repeat always sends the same.
func repeat(data []byte) func(int64) []byte { return func(int64) []byte { return data } }

const gzipHeader = "Content-Encoding: gzip\r\n"

// restAttacks are those of the listener for REST, and one in which each address attacks in another way.
func restAttacks() []attack {
	list := slices.Concat(bodyAttacks(), answerAttacks(), tlsAttacks())
	return append(list, attack{name: "rest-mixed", what: "each address polls in one of these ways", shared: pollsBudget, rest: func(p *poller) {
		list[p.number%len(list)].rest(p)
	}})
}

// bodyAttacks send bodies that take much memory.
func bodyAttacks() []attack {
	fields := repeated(`{"node": {"id": "a", "metadata": {"a": [`, `{},`, `]}}, "resource_names": ["checkout"]}`)
	nested := repeated(`{"node": {"id": "a", "metadata": {"a": `+strings.Repeat("[", 4_900), ` `, strings.Repeat("]", 4_900)+`}}}`)
	tiny := repeated(`{"node": {"id": "a"}, "resource_names": [`, `"a",`, `]}`)
	unknown := repeated(`{"node": {"id": "a"}, "x": [`, `{"":0},`, `]}`)
	report := repeated(`{"endpoint_health_response": {"endpoints_health": [`,
		`{"endpoint": {"address": {"socket_address": {"address": "10.0.0.1", "port_value": 80}}}, "health_status": "UNHEALTHY"},`, `]}}`)
	return []attack{
		{name: "rest-halves", what: "200 polls whose bodies of 4 MiB lack the last byte", rest: func(p *poller) {
			data := append(postHead(endpointsPath, "", restBody), make([]byte, restBody-1)...)
			p.parallel(restMost, p.held(data))
		}},
		{name: "rest-headers", what: "200 polls with headers of 60 KB that do not end", rest: func(p *poller) {
			p.parallel(restMost, p.held([]byte("POST / HTTP/1.1\r\nX: "+strings.Repeat("a", 60<<10))))
		}},
		{name: "rest-chunks", what: "200 polls with bodies in chunks of 1 byte that do not end", rest: func(p *poller) {
			chunks := bytes.Repeat([]byte("1;"+strings.Repeat("a", 100)+"\r\n \r\n"), 1<<10)
			head := []byte("POST " + endpointsPath + " HTTP/1.1\r\nHost: bench\r\nTransfer-Encoding: chunked\r\n\r\n")
			p.parallel(restMost, endlessly(head, chunks))
		}},
		{name: "rest-names", what: "20 clients that poll for other 20,000 names each time", shared: pollsBudget, rest: func(p *poller) {
			p.parallel(20, p.polls(func(n int64) []byte { return post(endpointsPath, "", asks("a", "a", p.names(n, 20_000))) }))
		}},
		{name: "rest-names-wait", what: "200 polls for 20,000 names each that wait for a minute", shared: pollsBudget, rest: asksOnce(versionOfNothing)},
		{name: "rest-names-shown", what: "the same by clients that show a version of another server", shared: pollsBudget, rest: asksOnce("1")},
		{name: "rest-names-tiny", what: "100 clients that poll for 1,000,000 names of 1 byte", rest: func(p *poller) {
			p.parallel(100, p.polls(repeat(post(endpointsPath, "", tiny))))
		}},
		{name: "rest-gzip", what: "the same, compressed", rest: func(p *poller) {
			p.parallel(restMost, p.polls(repeat(post(endpointsPath, gzipHeader, compressed(tiny)))))
		}},
		{name: "rest-fields", what: "100 clients with a million empty objects in the metadata of their node", rest: func(p *poller) {
			p.parallel(100, p.polls(repeat(post(endpointsPath, "", fields))))
		}},
		{name: "rest-fields-gzip", what: "200 such clients, compressed", rest: func(p *poller) {
			p.parallel(restMost, p.polls(repeat(post(endpointsPath, gzipHeader, compressed(fields)))))
		}},
		{name: "rest-nested", what: "100 clients with metadata of 4,900 levels", rest: func(p *poller) {
			p.parallel(100, p.polls(repeat(post(endpointsPath, "", nested))))
		}},
		{name: "rest-unknown", what: "100 clients with half a million unknown fields", rest: func(p *poller) {
			p.parallel(100, p.polls(repeat(post(endpointsPath, "", unknown))))
		}},
		{name: "rest-checkers", what: "50 checkers that poll with reports of 30,000 endpoints without end", rest: func(p *poller) {
			p.parallel(50, p.polls(repeat(post(checksPath, "", report))))
		}},
		{name: "rest-checkers-gzip", what: "200 such checkers, compressed", rest: func(p *poller) {
			p.parallel(restMost, p.polls(repeat(post(checksPath, gzipHeader, compressed(report)))))
		}},
	}
}

// versionOfNothing is the version of an answer that holds nothing, after which the server lets a client wait.
const versionOfNothing = "e3b0c44298fc1c14"

// asksOnce polls once on each connection, for other 20,000 names, with a version that the client has.
func asksOnce(version string) func(p *poller) {
	return func(p *poller) {
		p.parallel(restMost, func(conn net.Conn) error {
			n := p.asked.Add(1)
			body := asks(fmt.Sprint(n), "a", p.names(n, 20_000))
			body = append(body[:len(body)-1], fmt.Sprintf(`, "version_info": %q}`, version)...)
			return p.held(post(endpointsPath, "Prefer: wait=60\r\n", body))(conn)
		})
	}
}

// answerAttacks make the server remember much or answer much.
func answerAttacks() []attack {
	everything := post(clustersPath, "", asks("deaf", "a", []string{"*"}))
	return []attack{
		{name: "rest-clients", what: "50 connections on which each poll is of another client in another zone", shared: pollsBudget, rest: func(p *poller) {
			p.parallel(50, p.polls(func(n int64) []byte {
				return post(endpointsPath, "Prefer: wait=0\r\n", asks(fmt.Sprintf("%d-%d", p.number, n), fmt.Sprintf("%d-%d", p.number, n), []string{"checkout"}))
			}))
		}},
		{name: "rest-deaf", what: "200 connections that poll for all of 201 services again and again, and never read", rest: func(p *poller) {
			p.parallel(restMost, endlessly(nil, everything))
		}},
		{name: "rest-deaf-endpoints", what: "the same for all endpoints, 40,002", rest: func(p *poller) {
			names := []string{"checkout"}
			for i := range 200 {
				names = append(names, fmt.Sprintf("large-%d", i))
			}
			p.parallel(restMost, func(conn net.Conn) error {
				for {
					id := fmt.Sprintf("%d-%d", p.number, p.asked.Add(1))
					if _, err := conn.Write(post(endpointsPath, "", asks(id, "a", names))); err != nil {
						return err
					}
				}
			})
		}},
	}
}

// tlsAttacks are those of handshakes.
func tlsAttacks() []attack {
	return []attack{
		{name: "tls-hello", what: "200 connections that begin a handshake of TLS and stop", rest: func(p *poller) {
			plain := poller{ctx: p.ctx, way: &rawclient.Way{From: p.way.From}, address: p.address, opened: p.opened}
			hello := []byte{22, 3, 1, 0x3f, 0xff, 1, 0, 0x3f, 0xfb, 3, 3}
			plain.parallel(restMost, plain.held(append(hello, make([]byte, 8<<10)...)))
		}},
		{name: "tls-handshakes", what: "50 handshakes of TLS at a time without end", rest: func(p *poller) {
			p.parallel(50, func(net.Conn) error { return nil })
		}},
	}
}
