package envoyloop

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/isobar-xds/isobar/internal/fleet/envoy"
)

// listenerName is the name of the listener of WithListener.
const listenerName = "clients"

// WithListener adds a listener on a free port of loopback to the bootstrap that
// `isobar bootstrap envoy` prints. The route, YAML in braces without the braces,
// says where requests go. Responses name the backend and Envoy's response flags.
func WithListener(bootstrap, route string) (string, error) {
	const empty = "\n  listeners: []\n"
	if strings.Count(bootstrap, empty) != 1 {
		return "", errors.New("bootstrap: want one line \"listeners: []\" below static_resources")
	}
	return strings.Replace(bootstrap, empty, "\n"+Listener(route), 1), nil
}

// Listener is that listener as the first lines below static_resources.
func Listener(route string) string {
	return `  listeners:
    - name: ` + listenerName + `
      address: {socket_address: {address: 127.0.0.1, port_value: 0}}
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: clients
                route_config:
                  validate_clusters: false
                  response_headers_to_add:
                    - header: {key: ` + UpstreamHeader + `, value: "%UPSTREAM_HOST%"}
                    - header: {key: ` + flagsHeader + `, value: "%RESPONSE_FLAGS%"}
                  virtual_hosts:
                    - name: all
                      domains: ["*"]
                      routes: [{match: {prefix: /}, route: {` + route + `}}]
                http_filters:
                  - name: envoy.filters.http.router
                    typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
`
}

// Ejection is the outlier detection of Envoys without Isobar.
const Ejection = "outlier_detection: {consecutive_5xx: 5, interval: 2s, base_ejection_time: 10s, max_ejection_percent: 100}"

// Endpoint is a line of a cluster's locality.
func Endpoint(address string) string {
	host, port, _ := strings.Cut(address, ":")
	return fmt.Sprintf("              - endpoint: {address: {socket_address: {address: %q, port_value: %s}}}\n", host, port)
}

// static is the bootstrap of an Envoy without a management server: one cluster
// whose priorities hold the addresses, and which leaves hosts that fail.
func static(service, route string, priorities [][]string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `node: {id: alone, cluster: client}
static_resources:
%s  clusters:
    - name: %s
      type: STATIC
      connect_timeout: 1s
      %s
      load_assignment:
        cluster_name: %[2]s
        endpoints:
`, Listener(route), service, Ejection)
	for i, addresses := range priorities {
		fmt.Fprintf(&b, "          - priority: %d\n            lb_endpoints:\n", i)
		for _, a := range addresses {
			b.WriteString(Endpoint(a))
		}
	}
	return b.String()
}

// Proxy is an Envoy with a listener for clients.
type Proxy struct {
	*envoy.Process
	Target
}

// StartProxy runs an Envoy with a bootstrap that has the listener, and waits
// until it accepts requests.
func StartProxy(ctx context.Context, c envoy.Config, source int) (*Proxy, error) {
	process, err := envoy.Start(ctx, c)
	if err != nil {
		return nil, err
	}
	p := &Proxy{Process: process, Target: Target{Source: source}}
	if err := p.AwaitReady(ctx, time.Minute); err != nil {
		p.Kill()
		return nil, err
	}
	if p.Address, err = p.Listener(ctx, listenerName); err != nil {
		p.Kill()
		return nil, err
	}
	return p, nil
}

// Serves waits until the proxy has answered a request for the host with 200.
func (p *Proxy) Serves(ctx context.Context, host string) error {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	return poll(ctx, 30*time.Second, p.Exited(), func() error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.Address+"/", http.NoBody)
		if err != nil {
			return err
		}
		req.Host = host
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s", p.Address, resp.Status)
		}
		return nil
	})
}
