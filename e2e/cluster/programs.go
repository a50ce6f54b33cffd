package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/poll"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// StopAPIServer kills the API server, so that every connection to it breaks and none is
// accepted. It is started again after the test at the latest.
//
// There is one, so that no other test may run meanwhile.
func (c *Cluster) StopAPIServer(t testing.TB) {
	t.Helper()
	t.Cleanup(func() { c.StartAPIServer(t) })
	c.stop(t, "kube-apiserver")
}

// StartAPIServer starts the API server again and waits until it is ready, and the node too.
func (c *Cluster) StartAPIServer(t testing.TB) {
	t.Helper()
	c.start(t, "kube-apiserver")
	c.waitForNode(t, corev1.ConditionTrue)
}

// StopNode kills the kubelet and waits until the control plane holds the node for lost. Its
// containers go on. It is started again after the test at the latest.
//
// There is one, so that no other test may run meanwhile.
func (c *Cluster) StopNode(t testing.TB) {
	t.Helper()
	t.Cleanup(func() { c.StartNode(t) })
	c.stop(t, "kubelet")
	c.waitForNode(t, corev1.ConditionUnknown)
}

// StartNode starts the kubelet again and waits until the node is ready.
func (c *Cluster) StartNode(t testing.TB) {
	t.Helper()
	c.start(t, "kubelet")
	c.waitForNode(t, corev1.ConditionTrue)
}

// waitForNode waits until the control plane says this of whether the node is ready.
func (c *Cluster) waitForNode(t testing.TB, ready corev1.ConditionStatus) {
	t.Helper()
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		// It is also called after the test.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Second)
		defer cancel()
		node, err := c.Client.CoreV1().Nodes().Get(ctx, Node, metav1.GetOptions{})
		if err != nil {
			return poll.Continue("%v", err)
		}
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status != ready {
				return poll.Continue("%+v", condition)
			}
		}
		for _, taint := range node.Spec.Taints {
			// Pods come to a node only after its taint is taken away.
			if ready == corev1.ConditionTrue && strings.HasPrefix(taint.Key, "node.kubernetes.io/") {
				return poll.Continue("%+v", taint)
			}
		}
		return poll.Success()
	}, poll.WithTimeout(patience), poll.WithDelay(100*time.Millisecond))
}

// stop kills a program, which is not started again before start.
func (c *Cluster) stop(t testing.TB, program string) {
	t.Helper()
	assert.NilError(t, os.WriteFile(c.down(program), nil, 0o600))
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		pid, err := c.pid(program)
		if errors.Is(err, os.ErrNotExist) {
			return poll.Success() // It was never started.
		}
		if err != nil {
			return poll.Error(err)
		}
		// It is reaped at once by what started it.
		if err := syscall.Kill(pid, syscall.SIGKILL); errors.Is(err, syscall.ESRCH) {
			return poll.Success()
		}
		return poll.Continue("%s, process %d, is there", program, pid)
	}, poll.WithTimeout(patience), poll.WithDelay(20*time.Millisecond))
}

// start lets a program be started again.
func (c *Cluster) start(t testing.TB, program string) {
	t.Helper()
	if err := os.Remove(c.down(program)); !errors.Is(err, os.ErrNotExist) {
		assert.NilError(t, err)
	}
}

func (c *Cluster) down(program string) string { return filepath.Join(c.dir, "down", program) }

func (c *Cluster) pid(program string) (int, error) {
	text, err := os.ReadFile(filepath.Join(c.dir, "pid", program))
	if err != nil {
		return 0, err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("the process of %s: %w", program, err)
	}
	return pid, nil
}
