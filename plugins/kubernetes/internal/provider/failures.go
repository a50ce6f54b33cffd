package provider

import (
	"context"
	"errors"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sandbox-broker/sandbox-broker/plugins/kubernetes/internal/pods"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// explainAPI turns what a call of the API server came to into an error for the broker. other
// is the code of answers that mean nothing special.
func explainAPI(ctx context.Context, err error, other sdk.Code, doing string) error {
	if _, known := errors.AsType[*sdk.Error](err); err == nil || known {
		return err
	}
	if ctx.Err() != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	status, answered := errors.AsType[*apierrors.StatusError](err)
	if !answered {
		made := sdk.Errorf(sdk.CodeConnectionFailed, "%s: %w", doing, err)
		made.NoEffect = isUnsent(err)
		return made
	}
	made := sdk.Errorf(codeOf(err, other), "%s: %w", doing, err)
	made.NoEffect = refused(err)
	if details := status.Status().Details; details != nil && details.RetryAfterSeconds > 0 {
		made.RetryAfter = time.Duration(details.RetryAfterSeconds) * time.Second
	}
	return made
}

func codeOf(err error, other sdk.Code) sdk.Code {
	switch {
	case isExhausted(err), apierrors.IsTooManyRequests(err):
		return sdk.CodeQuotaExceeded
	case apierrors.IsUnauthorized(err), apierrors.IsForbidden(err):
		return sdk.CodeConnectionFailed
	case apierrors.IsServerTimeout(err), apierrors.IsTimeout(err), apierrors.IsInternalError(err), apierrors.IsServiceUnavailable(err), apierrors.IsConflict(err):
		return sdk.CodeUnavailable
	}
	return other
}

// isExhausted says that a quota of the namespace has no room for another pod.
func isExhausted(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota")
}

// refused says that the API server has certainly done nothing.
func refused(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) ||
		apierrors.IsTooManyRequests(err) || apierrors.IsNotFound(err) || apierrors.IsConflict(err)
}

var errNoRight = errors.New("gives no right to make pods")

// explainTry says which setting is probably at fault when no pod can be made.
func explainTry(ctx context.Context, err error) error {
	text := err.Error()
	switch {
	case apierrors.IsForbidden(err) && strings.Contains(text, "PodSecurity"):
		return sdk.FieldErrorf(sdk.CodeInvalidConfig, "namespace", "does not allow the pods of sandboxes, whose guest needs to be root with some capabilities in its own kernel: label it pod-security.kubernetes.io/enforce=privileged, and let nobody else make pods in it: %w", err)
	case apierrors.IsForbidden(err) && strings.Contains(text, "RuntimeClass"), strings.Contains(text, "runtimeClassName"):
		return sdk.FieldErrorf(sdk.CodeInvalidConfig, "runtime_class", "is not one of this cluster's: %w", err)
	case apierrors.IsForbidden(err) && strings.Contains(text, "service account"):
		return sdk.FieldErrorf(sdk.CodeInvalidConfig, "service_account", "is not in the namespace: %w", err)
	case apierrors.IsNotFound(err):
		return sdk.FieldErrorf(sdk.CodeInvalidConfig, "namespace", "does not exist: %w", err)
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return sdk.FieldErrorf(sdk.CodeConnectionFailed, "kubeconfig", "%w: %s", errNoRight, err)
	case apierrors.IsInvalid(err):
		return sdk.Errorf(sdk.CodeInvalidConfig, "the cluster does not take such pods: %w", err)
	}
	return explainAPI(ctx, err, sdk.CodeConnectionFailed, "try to make a pod")
}

// explainCreate says why there is no pod.
func explainCreate(ctx context.Context, err error) error {
	if _, known := errors.AsType[*sdk.Error](err); !known && errors.Is(context.Cause(ctx), errSlow) {
		return sdk.Errorf(sdk.CodeCreateFailed, "%w", err)
	}
	return explainAPI(ctx, err, sdk.CodeCreateFailed, "make a pod")
}

var errDeletedEarly = errors.New("somebody deleted the pod before it was ready")

// explainStart says why a pod does not run: in Kubernetes' own words, what it waits for.
func explainStart(ctx context.Context, pod *corev1.Pod, err error) error {
	if _, gone := errors.AsType[*pods.GoneError](err); gone || pod != nil && pod.DeletionTimestamp != nil {
		return sdk.Errorf(sdk.CodeCreateFailed, "%w: %s", errDeletedEarly, err)
	}
	if ctx.Err() == nil {
		return err
	}
	waiting := pods.Waiting(pod)
	if !errors.Is(context.Cause(ctx), errSlow) {
		return errors.Join(err, errors.New("the pod waits: "+waiting))
	}
	if waiting == "" {
		waiting = "Kubernetes does not say why"
	}
	if pod != nil && pods.Unschedulable(pod) {
		return sdk.Errorf(sdk.CodeQuotaExceeded, "no node has room for another pod: %s", waiting)
	}
	return sdk.Errorf(sdk.CodeCreateFailed, "%w: %s", errSlow, waiting)
}

// explainDestroy says why a pod is not gone.
func explainDestroy(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return sdk.Errorf(sdk.CodeUnavailable, "Kubernetes has been asked to end the pod and has not said yet that it is gone; the kubelet of its node may not answer: %w", err)
	}
	return explainAPI(ctx, err, sdk.CodeUnavailable, "destroy the pod")
}

// isFinal says whether a failure to make a pod is Kubernetes' own word to whoever waits, and
// comes again until somebody makes room or changes a setting.
func isFinal(err error) bool {
	e, ok := errors.AsType[*sdk.Error](err)
	return ok && (e.Code == sdk.CodeCreateFailed || e.Code == sdk.CodeQuotaExceeded)
}
