package claims

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	agentsv1beta1 "sigs.k8s.io/agent-sandbox/api/v1beta1"
	extensionsv1beta1 "sigs.k8s.io/agent-sandbox/extensions/api/v1beta1"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Reasons of the controller's that the module has no names for.
const (
	reasonNoTemplate = "TemplateNotFound"
	reasonNoPool     = "WarmPoolNotFound"
	// reasonError is anything else that went wrong, and is tried again.
	reasonError = "ReconcilerError"
)

// forGood are reasons that pass only when somebody does something.
var forGood = map[string]bool{
	"InvalidMetadata": true, "EnvVarsInjectionRejected": true, "VolumeClaimTemplatesError": true,
	extensionsv1beta1.ClaimExpiredReason: true, agentsv1beta1.SandboxReasonExpired: true, agentsv1beta1.SandboxReasonSuspended: true,
	agentsv1beta1.SandboxReasonMultiplePods: true,
}

var errNoPool = errors.New("somebody deleted what agent-sandbox makes pods from")

func unready(claim *extensionsv1beta1.SandboxClaim) *metav1.Condition {
	ready := meta.FindStatusCondition(claim.Status.Conditions, string(agentsv1beta1.SandboxConditionReady))
	if ready == nil || ready.Status == metav1.ConditionTrue {
		return nil
	}
	return ready
}

// hopeless says why a claim will get no pod; nil if it may.
func hopeless(claim *extensionsv1beta1.SandboxClaim) error {
	if claim.DeletionTimestamp != nil {
		return errDeleted
	}
	why := unready(claim)
	switch {
	case why == nil:
	case why.Reason == reasonNoPool || why.Reason == reasonNoTemplate:
		return sdk.Errorf(sdk.CodeCreateFailed, "%w: %s: %.300s", errNoPool, why.Reason, why.Message)
	case forGood[why.Reason]:
		return sdk.Errorf(sdk.CodeCreateFailed, "agent-sandbox refuses the claim: %s: %.300s", why.Reason, why.Message)
	case why.Reason == reasonError && strings.Contains(why.Message, "exceeded quota"):
		return sdk.Errorf(sdk.CodeQuotaExceeded, "agent-sandbox may make no further pod: %.300s", why.Message)
	case why.Reason == reasonError && strings.Contains(why.Message, "is forbidden"):
		return sdk.Errorf(sdk.CodeCreateFailed, "agent-sandbox may not make the pod: %.300s", why.Message)
	}
	return nil
}

// waiting says what a claim waits for, in agent-sandbox's own words.
func waiting(claim *extensionsv1beta1.SandboxClaim) string {
	if claim == nil {
		return "the claim was not seen"
	}
	if why := unready(claim); why != nil {
		return fmt.Sprintf("the claim waits: %s: %.300s", why.Reason, why.Message)
	}
	return "the controller of agent-sandbox has not looked at the claim"
}
