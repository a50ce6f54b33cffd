package provider

import (
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/confine"
	"github.com/sandbox-broker/sandbox-broker/plugins/kubernetes/internal/pods"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest"
)

// limits are those of each sandbox.
func (s settings) limits() confine.Limits {
	return confine.Limits{MemoryMB: s.MemoryMB, CPUs: s.CPUs, WorkspaceMB: s.WorkspaceMB, Processes: s.Processes}
}

// Where the guest comes from.
const (
	guestVolume  = "guest"
	guestDir     = "/opt/sandbox"
	guestInImage = "/sandbox-guest"
)

// endGrace is how long a pod has to end by itself, in seconds. The guest needs a moment.
const endGrace = 2

// pod is one sandbox: the guest is its only process at first, and starts all others. It has no
// name yet, and answers whom the authority of that public key has given a credential.
func (s settings) pod(authority string) *corev1.Pod {
	limits := s.limits()
	bytes := func(n int64) resource.Quantity { return *resource.NewQuantity(n, resource.BinarySI) }
	processors := func(n float64) resource.Quantity {
		return *resource.NewMilliQuantity(int64(math.Ceil(n*1000)), resource.DecimalSI)
	}
	most := corev1.ResourceList{corev1.ResourceCPU: processors(s.CPUs), corev1.ResourceMemory: bytes(limits.HostMemory())}
	least := most.DeepCopy()
	if s.CPURequest > 0 {
		least[corev1.ResourceCPU] = processors(s.CPURequest)
	}
	if s.MemoryRequestMB > 0 {
		least[corev1.ResourceMemory] = bytes(s.MemoryRequestMB << 20)
	}
	container := corev1.Container{
		Name:            pods.ContainerName,
		Image:           s.Image,
		ImagePullPolicy: corev1.PullPolicy(s.PullPolicy),
		Command:         []string{confine.GuestPath, guest.CommandListen},
		WorkingDir:      "/",
		Env: append(variables(confine.GuestEnv()),
			corev1.EnvVar{Name: guest.ListenVariable, Value: ":" + strconv.FormatInt(s.Port, 10)},
			corev1.EnvVar{Name: guest.AuthorityVariable, Value: authority},
			corev1.EnvVar{Name: guest.PodVariable, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.uid"}}},
			corev1.EnvVar{Name: guest.NetworkVariable, Value: guestNetwork(s.Network)},
			corev1.EnvVar{Name: guest.AbandonedVariable, Value: s.AbandonedAfter.String()},
		),
		Resources: corev1.ResourceRequirements{Limits: most, Requests: least},
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false),
			ReadOnlyRootFilesystem:   new(true),
			RunAsUser:                new(int64(0)),
			RunAsGroup:               new(int64(0)),
			Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: s.capabilities()},
			SeccompProfile:           &corev1.SeccompProfile{Type: s.seccomp()},
		},
		TerminationMessagePolicy: corev1.TerminationMessageReadFile,
	}
	spec := corev1.PodSpec{
		RestartPolicy:                 corev1.RestartPolicyNever,
		AutomountServiceAccountToken:  new(false),
		EnableServiceLinks:            new(false),
		TerminationGracePeriodSeconds: new(int64(endGrace)),
		ServiceAccountName:            s.ServiceAccount,
		NodeSelector:                  s.NodeSelector,
		Hostname:                      confine.Hostname,
		// Whom the cluster asks for names is not for the sandbox to know.
		DNSPolicy: corev1.DNSNone,
		DNSConfig: &corev1.PodDNSConfig{Nameservers: []string{"127.0.0.1"}, Searches: []string{"."}},
	}
	if s.Network == networkPod && s.Net.DNS == dnsCluster {
		spec.DNSPolicy, spec.DNSConfig = corev1.DNSClusterFirst, nil
	}
	if s.RuntimeClass != "" {
		spec.RuntimeClassName = &s.RuntimeClass
	}
	for _, name := range s.PullSecrets {
		spec.ImagePullSecrets = append(spec.ImagePullSecrets, corev1.LocalObjectReference{Name: name})
	}
	for _, t := range s.Tolerations {
		one := corev1.Toleration{Key: t.Key, Value: t.Value, Effect: corev1.TaintEffect(t.Effect), Operator: corev1.TolerationOpEqual}
		if t.Value == "" {
			one.Operator = corev1.TolerationOpExists
		}
		spec.Tolerations = append(spec.Tolerations, one)
	}
	for _, t := range limits.Tmpfs() {
		volume := strings.ReplaceAll(strings.Trim(t.Path, "/"), "/", "-")
		size := bytes(t.MB << 20)
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{
			EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, SizeLimit: &size},
		}})
		container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: volume, MountPath: t.Path})
	}
	if s.GuestImage != "" {
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: guestVolume, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
		spec.InitContainers = []corev1.Container{{
			Name: guestVolume, Image: s.GuestImage, ImagePullPolicy: container.ImagePullPolicy,
			Command:      []string{guestInImage, guest.CommandInstall, guestDir},
			VolumeMounts: []corev1.VolumeMount{{Name: guestVolume, MountPath: guestDir}},
			Resources:    container.Resources,
			SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true), RunAsUser: new(int64(0)),
				Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}, SeccompProfile: container.SecurityContext.SeccompProfile,
			},
		}}
		container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: guestVolume, MountPath: guestDir, ReadOnly: true})
	}
	spec.Containers = []corev1.Container{container}
	return &corev1.Pod{Spec: spec}
}

// guestNetwork is a network as the guest has it.
func guestNetwork(network string) string {
	if network == networkNone {
		return guest.NetworkNone
	}
	return ""
}

// variables are those of a list of NAME=VALUE.
func variables(list []string) (all []corev1.EnvVar) {
	for _, one := range list {
		name, value, _ := strings.Cut(one, "=")
		all = append(all, corev1.EnvVar{Name: name, Value: value})
	}
	return all
}

// capabilities are the guest's. Under a kernel of the pod's own they are that kernel's.
func (s settings) capabilities() (all []corev1.Capability) {
	for _, name := range confine.GuestCapabilities() {
		if s.Kernel == kernelShared && name == "CAP_SYS_RESOURCE" {
			continue // it would let the guest pass the node's own limits
		}
		all = append(all, corev1.Capability(strings.TrimPrefix(name, "CAP_")))
	}
	if s.Kernel == kernelShared && s.Network == networkNone {
		all = append(all, "NET_ADMIN") // for the loopback of the network that the guest makes
	}
	return slices.Clip(all)
}

// seccomp is the profile of the node's kernel. Of a kernel of its own the pod may ask
// everything: runtimes of that kind confine themselves.
func (s settings) seccomp() corev1.SeccompProfileType { return corev1.SeccompProfileTypeRuntimeDefault }
