package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/isobar-xds/isobar/internal/discovery/kubernetes/v1alpha1"
)

const protobuf = "application/vnd.kubernetes.protobuf"

// clients speak with one API server.
type clients struct {
	host  string
	parts map[schema.GroupVersion]*rest.RESTClient
	nodes metadata.Getter
}

// REST returns how the API server is reached; nothing is sent yet.
func (c *Cluster) REST() (*rest.Config, error) {
	cfg, err := restConfig(c)
	if err != nil {
		return nil, err
	}
	if cfg.ExecProvider != nil || cfg.AuthProvider != nil {
		return nil, errors.New("the kubeconfig gets its credentials from a command, which Isobar does not run; use a token or a client certificate")
	}
	cfg.UserAgent = "isobar"
	return cfg, nil
}

// connect reads the credentials; nothing is sent yet.
func connect(c *Cluster) (*clients, error) {
	cfg, err := c.REST()
	if err != nil {
		return nil, err
	}
	cfg.WarningHandler = rest.NoWarnings{}
	cfg.ContentType, cfg.AcceptContentTypes = protobuf, protobuf+",application/json"
	transport, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, err
	}
	out := &clients{host: cfg.Host, parts: map[schema.GroupVersion]*rest.RESTClient{}}
	for _, gv := range []schema.GroupVersion{corev1.SchemeGroupVersion, discoveryv1.SchemeGroupVersion, v1alpha1.GroupVersion} {
		if out.parts[gv], err = partFor(cfg, gv, transport); err != nil {
			return nil, err
		}
	}
	partial, err := metadata.NewForConfigAndClient(cfg, transport)
	if err != nil {
		return nil, err
	}
	out.nodes = partial.Resource(corev1.SchemeGroupVersion.WithResource("nodes"))
	return out, nil
}

func restConfig(c *Cluster) (*rest.Config, error) {
	if c.Kubeconfig == "" {
		cfg, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("the service account of the Pod can't be read; outside of a cluster, set kubeconfig: %w", err)
		}
		return cfg, nil
	}
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: c.Kubeconfig}
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: c.Context}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("reading kubeconfig %s: %w", c.Kubeconfig, err)
	}
	return cfg, nil
}

// codecs know the three groups that are read: the whole clientset knows all groups,
// and would double the size of the binary's part.
var codecs = func() serializer.CodecFactory {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, discoveryv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err) // the types of one module contradict each other
		}
	}
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	return serializer.NewCodecFactory(s)
}()

var parameters = runtime.NewParameterCodec(func() *runtime.Scheme {
	s := runtime.NewScheme()
	metav1.AddToGroupVersion(s, corev1.SchemeGroupVersion)
	metav1.AddToGroupVersion(s, discoveryv1.SchemeGroupVersion)
	metav1.AddToGroupVersion(s, v1alpha1.GroupVersion)
	return s
}())

func partFor(cfg *rest.Config, gv schema.GroupVersion, transport *http.Client) (*rest.RESTClient, error) {
	part := rest.CopyConfig(cfg)
	part.GroupVersion, part.NegotiatedSerializer = &gv, codecs.WithoutConversion()
	part.APIPath = "/apis"
	if gv == v1alpha1.GroupVersion { // API servers have custom resources in JSON only
		part.ContentType, part.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	}
	if gv.Group == "" {
		part.APIPath = "/api"
	}
	return rest.RESTClientForConfigAndClient(part, transport)
}

// source lists and watches one resource, and says how each request went.
func (c *clients) source(gv schema.GroupVersion, resource, namespace, selector string, list func() runtime.Object, went func(error)) *cache.ListWatch {
	request := func(o *metav1.ListOptions) *rest.Request {
		o.LabelSelector = selector
		return c.parts[gv].Get().Namespace(namespace).Resource(resource).VersionedParams(o, parameters)
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			into := list()
			err := request(&o).Do(ctx).Into(into)
			went(err)
			return into, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.Watch = true
			w, err := request(&o).Watch(ctx)
			went(err)
			return w, err
		},
	}
}

// nodeSource is source for Nodes, of which it asks for no more than metadata.
func (c *clients) nodeSource(went func(error)) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := c.nodes.List(ctx, o)
			went(err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := c.nodes.Watch(ctx, o)
			went(err)
			return w, err
		},
	}
}
