package provider

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/confine"
	"github.com/sandbox-broker/sandbox-broker/plugins/kubernetes/internal/pods"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/stdio"
)

// dialByAPI connects to the guest of a pod by way of the API server: it runs a program in the
// pod that passes everything on. The link's keys are spoken over it as over any connection,
// so that who may run programs in pods is not the guest's client yet.
func dialByAPI(config *rest.Config, client kubernetes.Interface) func(context.Context, *corev1.Pod) (net.Conn, error) {
	return func(ctx context.Context, pod *corev1.Pod) (net.Conn, error) {
		request := client.CoreV1().RESTClient().Get().Namespace(pod.Namespace).Resource("pods").Name(pod.Name).SubResource("exec").
			VersionedParams(&corev1.PodExecOptions{
				Container: pods.ContainerName, Stdin: true, Stdout: true,
				Command: []string{confine.GuestPath, guest.CommandConnect},
			}, scheme.ParameterCodec)
		executor, err := remotecommand.NewWebSocketExecutor(config, http.MethodGet, request.URL().String())
		if err != nil {
			return nil, fmt.Errorf("run a program in the pod: %w", err)
		}
		stdin, ours := io.Pipe()
		theirs, stdout := io.Pipe()
		// It goes on when the dialling has ended.
		life, end := context.WithCancel(context.WithoutCancel(ctx))
		go func() {
			defer end()
			err := executor.StreamWithContext(life, remotecommand.StreamOptions{Stdin: stdin, Stdout: stdout})
			_ = stdout.CloseWithError(err) // nil is the end of file
			_ = stdin.CloseWithError(io.ErrClosedPipe)
		}()
		return &execConn{Conn: stdio.NewConn(theirs, ours), end: end}, nil
	}
}

// execConn ends what passes it on when it is closed.
type execConn struct {
	*stdio.Conn
	end context.CancelFunc
}

// Close implements net.Conn.
func (c *execConn) Close() error {
	defer c.end()
	return c.Conn.Close()
}
