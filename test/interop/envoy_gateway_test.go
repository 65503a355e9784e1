package interop

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// gateway is an Envoy with a listener that leads to every service by the first
// part of the path.
type gateway struct {
	*proxy

	version, protocol, zone string
	id                      string // node.id
	services                []string
	tls                     []string // flags of isobar bootstrap envoy
	tap                     *tap     // nil where its streams are not tapped
	bootstrap               string
	listener                string
	client                  http.Client
}

func (g *gateway) name() string { return envoyName(g.version, g.protocol) }

// envoyName is what the page calls an Envoy.
func envoyName(version, protocol string) string {
	return fmt.Sprintf("Envoy %s, %s", strings.Join(strings.Split(version, ".")[:2], "."), protocol)
}

// request makes one request of a service and returns the name of the backend.
func (g *gateway) request(ctx context.Context, service string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+g.listener+"/"+service+"/", http.NoBody)
	if err != nil {
		return "", err
	}
	resp, err := g.client.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, body)
	}
	return string(body), err
}

// requests makes n requests of a service, a few at a time.
func (g *gateway) requests(ctx context.Context, service string, n int) outcome {
	o := outcome{Served: map[string]int{}, Failed: map[string]int{}}
	var mu sync.Mutex
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range n / 4 {
				name, err := g.request(ctx, service)
				mu.Lock()
				if err != nil {
					o.Failed[err.Error()]++
				} else {
					o.Served[name]++
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return o
}

// steady makes so many requests a second of a service until it is stopped,
// and returns what became of them.
func (g *gateway) steady(ctx context.Context, service string, rate int) (stop func() outcome) {
	ctx, cancel := context.WithCancel(ctx)
	o := outcome{Served: map[string]int{}, Failed: map[string]int{}}
	var mu sync.Mutex
	var all sync.WaitGroup
	all.Go(func() {
		ticker := time.NewTicker(time.Second / time.Duration(rate))
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			all.Go(func() {
				name, err := g.request(context.WithoutCancel(ctx), service)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					o.Failed[err.Error()]++
				} else {
					o.Served[name]++
				}
			})
		}
	})
	return func() outcome {
		cancel()
		all.Wait()
		return o
	}
}
