package resource

import (
	"math"
	"net/netip"
	"strings"
	"time"

	apiv2auth "github.com/envoyproxy/go-control-plane/envoy/api/v2/auth"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	cswrrv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/client_side_weighted_round_robin/v3"
	lbcommonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/common/v3"
	leastrequestv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/least_request/v3"
	roundrobinv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/round_robin/v3"
	wrrv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/wrr_locality/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/isobar-xds/isobar"
)

// clusterOf makes the cluster of a service: endpoints over ADS, load reports to the same
// server, locality weights obeyed. gRPC clients get one without what they would refuse:
// files of TLS, and policies that they may not have.
//
// gRPC turns ROUND_ROBIN into weighted localities by itself, Envoy does so by
// locality_weighted_lb_config. With ORCA both need load_balancing_policy;
// Envoy rejects that together with locality_weighted_lb_config.
func clusterOf(s *isobar.Service, name string, grpc bool) (*clusterv3.Cluster, error) {
	c := &clusterv3.Cluster{
		Name:                 name,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig:     &clusterv3.Cluster_EdsClusterConfig{EdsConfig: awaitedOverADS(), ServiceName: Renamed(name, Endpoints)},
		LbPolicy:             clusterv3.Cluster_ROUND_ROBIN,
		ConnectTimeout:       durationpb.New(s.ConnectTimeout.Duration()),
		CircuitBreakers:      circuitBreakersOf(s.CircuitBreakers),
		OutlierDetection:     outlierDetectionOf(&s.OutlierDetection, grpc),
		CommonLbConfig: &clusterv3.Cluster_CommonLbConfig{
			HealthyPanicThreshold: &typev3.Percent{Value: float64(s.PanicThreshold())},
		},
		LrsServer: &corev3.ConfigSource{
			ConfigSourceSpecifier: &corev3.ConfigSource_Self{Self: &corev3.SelfConfigSource{}},
			ResourceApiVersion:    corev3.ApiVersion_V3,
		},
	}
	// Named metrics that nothing depends on stay out, since applications may have
	// any number of them.
	c.LrsReportEndpointMetrics = s.ReportedMetrics()
	if err := setPicking(c, s, grpc); err != nil {
		return nil, err
	}
	if grpc {
		socket, err := grpcSocketOf(s.TLS)
		if err != nil {
			return nil, err
		}
		c.TransportSocket = socket
		return c, checkName(s.Name)
	}
	if err := setProtocol(c, s); err != nil {
		return nil, err
	}
	socket, err := tlsSocketOf(s.TLS, s.EndpointProtocol())
	if err != nil {
		return nil, err
	}
	c.TransportSocket = socket
	return c, checkName(s.Name)
}

// circuitBreakersOf lifts the limits of a cluster that are not configured. Unset,
// Envoy and gRPC cap the concurrent requests of each client at 1,024 and fail the
// rest, unseen by the plan: load is limited here, by ceilings and drops. Routes
// of Envoy may have either priority.
func circuitBreakersOf(b isobar.CircuitBreakers) *clusterv3.CircuitBreakers {
	limit := func(n uint32) *wrapperspb.UInt32Value {
		if n == 0 {
			n = math.MaxUint32
		}
		return wrapperspb.UInt32(n)
	}
	out := &clusterv3.CircuitBreakers{}
	for _, priority := range []corev3.RoutingPriority{corev3.RoutingPriority_DEFAULT, corev3.RoutingPriority_HIGH} {
		out.Thresholds = append(out.Thresholds, &clusterv3.CircuitBreakers_Thresholds{
			Priority:       priority,
			MaxConnections: limit(b.MaxConnections), MaxPendingRequests: limit(b.MaxPendingRequests),
			MaxRequests: limit(b.MaxRequests), MaxRetries: limit(b.MaxRetries),
		})
	}
	return out
}

// outlierDetectionOf makes the settings of outlier detection; nil turns it off.
// The fields have the names of the settings.
func outlierDetectionOf(o *isobar.OutlierDetection, grpc bool) *clusterv3.OutlierDetection {
	if o.Off {
		return nil
	}
	m := &clusterv3.OutlierDetection{}
	fields := m.ProtoReflect().Descriptor().Fields()
	for f := range isobar.OutlierFields {
		value, ok := o.Effective(f, grpc)
		if !ok {
			continue
		}
		spec := f.Spec()
		field := fields.ByName(protoreflect.Name(spec.Name))
		var set proto.Message
		switch spec.Kind {
		case isobar.OutlierDuration:
			set = durationpb.New(time.Duration(value))
		case isobar.OutlierSwitch:
			if field.Kind() == protoreflect.BoolKind { // not wrapped
				m.ProtoReflect().Set(field, protoreflect.ValueOfBool(value != 0))
				continue
			}
			set = wrapperspb.Bool(value != 0)
		case isobar.OutlierCount, isobar.OutlierPercent:
			set = wrapperspb.UInt32(uint32(value)) //nolint:gosec // at most MaxOutlierCount
		}
		m.ProtoReflect().Set(field, protoreflect.ValueOfMessage(set.ProtoReflect()))
	}
	return m
}

// setPicking sets how clients obey the weights of localities and pick endpoints
// within them.
func setPicking(c *clusterv3.Cluster, s *isobar.Service, grpc bool) error {
	var err error
	switch {
	case s.ORCA.On:
		c.LoadBalancingPolicy, err = orcaPolicy(s.ORCA)
	case s.LBPolicy == isobar.LBLeastRequest && grpc:
		// With lb_policy LEAST_REQUEST gRPC does not obey weights of localities.
		c.LoadBalancingPolicy, err = weightedLocalities(
			namedPolicy{"envoy.load_balancing_policies.least_request", &leastrequestv3.LeastRequest{}},
			namedPolicy{roundRobinName, &roundrobinv3.RoundRobin{}},
		)
	default:
		if s.LBPolicy == isobar.LBLeastRequest {
			c.LbPolicy = clusterv3.Cluster_LEAST_REQUEST
		}
		obeyLocalityWeights(c.GetCommonLbConfig())
	}
	return err
}

// obeyLocalityWeights has Envoy obey the weights of localities.
func obeyLocalityWeights(c *clusterv3.Cluster_CommonLbConfig) {
	c.LocalityConfigSpecifier = &clusterv3.Cluster_CommonLbConfig_LocalityWeightedLbConfig_{
		LocalityWeightedLbConfig: &clusterv3.Cluster_CommonLbConfig_LocalityWeightedLbConfig{},
	}
}

const roundRobinName = "envoy.load_balancing_policies.round_robin"

// orcaPolicy is wrr_locality over client_side_weighted_round_robin, the only
// child that Envoy accepts there. All take the first policy of a list that they
// know: the round_robin within is for clients that lack the other, grpc-js among
// them, which else refuse the cluster; that at the end is for Envoys without
// wrr_locality (1.36), which obey the weights of localities by it.
func orcaPolicy(o isobar.ORCA) (*clusterv3.LoadBalancingPolicy, error) {
	weighted := &cswrrv3.ClientSideWeightedRoundRobin{}
	if o.OutOfBand > 0 {
		weighted.EnableOobLoadReport = wrapperspb.Bool(true)
		weighted.OobReportingPeriod = durationpb.New(o.OutOfBand)
	}
	out, err := weightedLocalities(
		namedPolicy{"envoy.load_balancing_policies.client_side_weighted_round_robin", weighted},
		namedPolicy{roundRobinName, &roundrobinv3.RoundRobin{}},
	)
	if err != nil {
		return nil, err
	}
	last, err := policiesOf(namedPolicy{roundRobinName, &roundrobinv3.RoundRobin{LocalityLbConfig: &lbcommonv3.LocalityLbConfig{
		LocalityConfigSpecifier: &lbcommonv3.LocalityLbConfig_LocalityWeightedLbConfig_{
			LocalityWeightedLbConfig: &lbcommonv3.LocalityLbConfig_LocalityWeightedLbConfig{},
		},
	}}})
	if err != nil {
		return nil, err
	}
	out.Policies = append(out.Policies, last.GetPolicies()...)
	return out, nil
}

// WithoutPolicies makes a cluster one for Envoys before 1.37, which refuse
// wrr_locality whatever is listed behind it: they obey the weights of localities,
// and spread requests evenly within them.
func WithoutPolicies(c *clusterv3.Cluster) {
	if c.GetLoadBalancingPolicy() == nil {
		return
	}
	c.LoadBalancingPolicy = nil
	obeyLocalityWeights(c.GetCommonLbConfig())
}

// weightedLocalities is wrr_locality over the first of some policies that the
// client knows.
func weightedLocalities(within ...namedPolicy) (*clusterv3.LoadBalancingPolicy, error) {
	children, err := policiesOf(within...)
	if err != nil {
		return nil, err
	}
	return policiesOf(namedPolicy{"envoy.load_balancing_policies.wrr_locality", &wrrv3.WrrLocality{EndpointPickingPolicy: children}})
}

// namedPolicy is the name of an extension and its configuration.
type namedPolicy struct {
	name   string
	config proto.Message
}

// policiesOf lists policies, best first.
func policiesOf(list ...namedPolicy) (*clusterv3.LoadBalancingPolicy, error) {
	out := new(clusterv3.LoadBalancingPolicy)
	for _, p := range list {
		config, err := Packed(p.config)
		if err != nil {
			return nil, err
		}
		out.Policies = append(out.Policies, &clusterv3.LoadBalancingPolicy_Policy{
			TypedExtensionConfig: &corev3.TypedExtensionConfig{Name: p.name, TypedConfig: config},
		})
	}
	return out, nil
}

// httpOptionsName is where Envoy looks for the protocol of a cluster.
const httpOptionsName = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"

// setProtocol sets the protocol of a cluster; without any Envoy speaks HTTP/1.
func setProtocol(c *clusterv3.Cluster, s *isobar.Service) error {
	options := &httpv3.HttpProtocolOptions{}
	switch s.EndpointProtocol() {
	case isobar.ProtocolUnset, isobar.ProtocolHTTP1:
		return nil
	case isobar.ProtocolHTTP2, isobar.ProtocolGRPC:
		options.UpstreamProtocolOptions = &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{ExplicitHttpConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig{
			ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{Http2ProtocolOptions: &corev3.Http2ProtocolOptions{}},
		}}
	case isobar.ProtocolAuto:
		if s.TLS != nil {
			options.UpstreamProtocolOptions = &httpv3.HttpProtocolOptions_AutoConfig{AutoConfig: &httpv3.HttpProtocolOptions_AutoHttpConfig{
				HttpProtocolOptions: &corev3.Http1ProtocolOptions{}, Http2ProtocolOptions: &corev3.Http2ProtocolOptions{},
			}}
			break
		}
		options.UpstreamProtocolOptions = &httpv3.HttpProtocolOptions_UseDownstreamProtocolConfig{
			UseDownstreamProtocolConfig: &httpv3.HttpProtocolOptions_UseDownstreamHttpConfig{
				HttpProtocolOptions: &corev3.Http1ProtocolOptions{}, Http2ProtocolOptions: &corev3.Http2ProtocolOptions{},
			},
		}
	}
	config, err := Packed(options)
	if err != nil {
		return err
	}
	c.TypedExtensionProtocolOptions = map[string]*anypb.Any{httpOptionsName: config}
	return nil
}

// TLSSocketName is the name by which Envoy knows its TLS.
const TLSSocketName = "envoy.transport_sockets.tls"

// SystemCAFile is where Envoy's own images, and most systems, keep the
// certificates that the system trusts.
const SystemCAFile = "/etc/ssl/certs/ca-certificates.crt"

// tlsSocketOf makes what Envoy uses TLS with endpoints by; nil for plaintext.
// Its files are read by Envoy.
func tlsSocketOf(t *isobar.EndpointTLS, p isobar.Protocol) (*corev3.TransportSocket, error) {
	if t == nil {
		return nil, nil //nolint:nilnil // there is none
	}
	ca := t.CA
	if ca == isobar.SystemCA {
		ca = SystemCAFile
	}
	common := &tlsv3.CommonTlsContext{
		ValidationContextType: &tlsv3.CommonTlsContext_ValidationContext{ValidationContext: &tlsv3.CertificateValidationContext{
			TrustedCa: clientFile(ca), MatchTypedSubjectAltNames: typedNamesOf(t.SubjectAltNames),
		}},
	}
	switch p {
	case isobar.ProtocolHTTP2, isobar.ProtocolGRPC:
		common.AlpnProtocols = []string{"h2"} // gRPC servers insist on it
	case isobar.ProtocolUnset, isobar.ProtocolHTTP1:
		common.AlpnProtocols = []string{"http/1.1"}
	case isobar.ProtocolAuto: // Envoy offers both
	}
	if t.Cert != "" {
		common.TlsCertificates = []*tlsv3.TlsCertificate{{CertificateChain: clientFile(t.Cert), PrivateKey: clientFile(t.Key)}}
	}
	return tlsSocket(&tlsv3.UpstreamTlsContext{Sni: t.SNI, CommonTlsContext: common})
}

// grpcSocketOf makes what gRPC clients with xDS credentials speak TLS by. It
// names entries of their bootstrap file, without which they refuse it.
func grpcSocketOf(t *isobar.EndpointTLS) (*corev3.TransportSocket, error) {
	if t == nil || t.GRPC == nil {
		return nil, nil //nolint:nilnil // there is none
	}
	names := make([]*matcherv3.StringMatcher, len(t.SubjectAltNames))
	for i, name := range t.SubjectAltNames {
		names[i] = nameMatcher(name)
	}
	common := &tlsv3.CommonTlsContext{
		ValidationContextType: &tlsv3.CommonTlsContext_ValidationContext{ValidationContext: &tlsv3.CertificateValidationContext{
			CaCertificateProviderInstance: &tlsv3.CertificateProviderPluginInstance{InstanceName: t.GRPC.CA},
			MatchSubjectAltNames:          names, //nolint:staticcheck // gRPC knows no other field
		}},
	}
	if t.GRPC.Cert != "" {
		common.TlsCertificateProviderInstance = &tlsv3.CertificateProviderPluginInstance{InstanceName: t.GRPC.Cert}
	}
	return tlsSocket(&tlsv3.UpstreamTlsContext{Sni: t.SNI, CommonTlsContext: common})
}

func tlsSocket(context proto.Message) (*corev3.TransportSocket, error) {
	config, err := Packed(context)
	if err != nil {
		return nil, err
	}
	return &corev3.TransportSocket{Name: TLSSocketName, ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: config}}, nil
}

func clientFile(path string) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: path}}
}

// typedNamesOf makes matchers of subject alternative names, one of which has to
// match.
func typedNamesOf(names []string) []*tlsv3.SubjectAltNameMatcher {
	out := make([]*tlsv3.SubjectAltNameMatcher, len(names))
	for i, name := range names {
		out[i] = &tlsv3.SubjectAltNameMatcher{SanType: sanTypeOf(name), Matcher: nameMatcher(name)}
	}
	return out
}

func sanTypeOf(name string) tlsv3.SubjectAltNameMatcher_SanType {
	if strings.Contains(name, "://") {
		return tlsv3.SubjectAltNameMatcher_URI
	}
	if _, err := netip.ParseAddr(name); err == nil {
		return tlsv3.SubjectAltNameMatcher_IP_ADDRESS
	}
	return tlsv3.SubjectAltNameMatcher_DNS
}

func nameMatcher(name string) *matcherv3.StringMatcher {
	if prefix, ok := strings.CutSuffix(name, "*"); ok {
		return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: prefix}}
	}
	return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: name}}
}

// socketV2 translates the TLS of a cluster. Providers of certificates came
// later, so gRPC clients get none.
func socketV2(s *corev3.TransportSocket) (*corev3.TransportSocket, error) {
	if s == nil {
		return nil, nil //nolint:nilnil // there is none
	}
	context := &tlsv3.UpstreamTlsContext{}
	if err := s.GetTypedConfig().UnmarshalTo(context); err != nil {
		return nil, err
	}
	validation := context.GetCommonTlsContext().GetValidationContext()
	if validation.GetCaCertificateProviderInstance() != nil {
		return nil, nil //nolint:nilnil // as above
	}
	for _, m := range validation.GetMatchTypedSubjectAltNames() {
		validation.MatchSubjectAltNames = append(validation.MatchSubjectAltNames, m.GetMatcher()) //nolint:staticcheck // the field of v2
	}
	validation.MatchTypedSubjectAltNames = nil
	old := &apiv2auth.UpstreamTlsContext{}
	encoded, err := reread(context, old)
	if err != nil {
		return nil, err
	}
	return &corev3.TransportSocket{Name: TLSSocketName, ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: anyOf(old, encoded)}}, nil
}
