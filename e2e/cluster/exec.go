package cluster

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
	utilexec "k8s.io/client-go/util/exec"
)

// Output is what a command left.
type Output struct {
	Stdout, Stderr string
	ExitCode       int
}

// Exec runs a command in a pod's first container, by the API server and over a WebSocket. A
// command that fails is no error.
func (c *Cluster) Exec(ctx context.Context, pod *corev1.Pod, stdin io.Reader, command ...string) (Output, error) {
	request := c.Client.CoreV1().RESTClient().Get().Namespace(pod.Namespace).Resource("pods").Name(pod.Name).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{
			Container: pod.Spec.Containers[0].Name, Command: command, Stdin: stdin != nil, Stdout: true, Stderr: true,
		}, scheme.ParameterCodec)
	executor, err := remotecommand.NewWebSocketExecutor(c.Config, http.MethodGet, request.URL().String())
	if err != nil {
		return Output{}, err
	}
	var stdout, stderr strings.Builder
	err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: stdin, Stdout: &stdout, Stderr: &stderr})
	out := Output{Stdout: stdout.String(), Stderr: stderr.String()}
	var exit utilexec.CodeExitError
	if errors.As(err, &exit) {
		out.ExitCode, err = exit.Code, nil
	}
	return out, err
}
