// Command controllers runs the controllers of Kubernetes that the tests need: those of
// Deployments, ReplicaSets, EndpointSlices and ServiceAccounts. They are what
// kube-controller-manager runs with --controllers=deployment,replicaset,endpointslice,serviceaccount.
// That program is not built, because its other controllers need 360 more packages than
// kube-apiserver has, which take minutes to compile.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/deployment"
	"k8s.io/kubernetes/pkg/controller/endpointslice"
	"k8s.io/kubernetes/pkg/controller/replicaset"
	"k8s.io/kubernetes/pkg/controller/serviceaccount"
)

const (
	// qps and burst limit the requests of each controller. kube-controller-manager's
	// --kube-api-qps and --kube-api-burst are 20 and 30 unless set: tests don't wait so long.
	qps, burst = 500, 1000

	// workers is how many objects of one kind a controller synchronizes at once.
	workers = 10

	// resync, burstReplicas and maxEndpointsPerSlice are the defaults of kube-controller-manager.
	resync               = 12 * time.Hour
	burstReplicas        = 500
	maxEndpointsPerSlice = 100
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "file with the address of the API server and the credentials")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, *kubeconfig); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run runs the controllers until ctx ends.
func run(ctx context.Context, kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = qps, burst
	config.ContentType = "application/vnd.kubernetes.protobuf"
	controllers, err := start(ctx, config)
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	for _, controller := range controllers {
		running.Go(func() { controller.Run(ctx, workers) })
	}
	running.Wait()
	return nil
}

// controller is any of the controllers: each runs until ctx ends.
type controller interface {
	Run(ctx context.Context, workers int)
}

// start makes the controllers and starts the informers that they share.
func start(ctx context.Context, config *rest.Config) ([]controller, error) {
	var failed error
	client := func(name string) kubernetes.Interface {
		made, err := kubernetes.NewForConfig(rest.AddUserAgent(rest.CopyConfig(config), name))
		if err != nil && failed == nil {
			failed = err
		}
		return made
	}
	shared := informers.NewSharedInformerFactory(client("shared-informers"), resync)
	core, apps := shared.Core().V1(), shared.Apps().V1()
	deployments, err := deployment.NewDeploymentController(ctx, apps.Deployments(), apps.ReplicaSets(), core.Pods(), client("deployment-controller"))
	if err != nil {
		return nil, err
	}
	accounts, err := serviceaccount.NewServiceAccountsController(klog.FromContext(ctx), core.ServiceAccounts(), core.Namespaces(),
		client("service-account-controller"), serviceaccount.DefaultServiceAccountsControllerOptions())
	if err != nil {
		return nil, err
	}
	controllers := []controller{
		deployments,
		accounts,
		replicaset.NewReplicaSetController(ctx, apps.ReplicaSets(), core.Pods(), client("replicaset-controller"), burstReplicas),
		endpointslice.NewController(ctx, core.Pods(), core.Services(), core.Nodes(), shared.Discovery().V1().EndpointSlices(),
			maxEndpointsPerSlice, client("endpointslice-controller"), 0),
	}
	if failed != nil {
		return nil, failed
	}
	shared.Start(ctx.Done())
	return controllers, nil
}
