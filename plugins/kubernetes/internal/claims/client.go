package claims

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/rest"
	extensionsv1beta1 "sigs.k8s.io/agent-sandbox/extensions/api/v1beta1"
)

// sandboxKind is the kind of what controls a pod.
const sandboxKind = "Sandbox"

// client speaks of agent-sandbox's objects in one namespace. Its types are the module's; its
// clients are not, for they bring more than these few calls need.
type client struct {
	claims    *gentype.ClientWithList[*extensionsv1beta1.SandboxClaim, *extensionsv1beta1.SandboxClaimList]
	pools     *gentype.ClientWithList[*extensionsv1beta1.SandboxWarmPool, *extensionsv1beta1.SandboxWarmPoolList]
	templates *gentype.ClientWithList[*extensionsv1beta1.SandboxTemplate, *extensionsv1beta1.SandboxTemplateList]
}

// Resources of agent-sandbox that are used here.
const (
	resourceClaims    = "sandboxclaims"
	resourcePools     = "sandboxwarmpools"
	resourceTemplates = "sandboxtemplates"
)

func newClient(config *rest.Config, namespace string) (client, error) {
	scheme := runtime.NewScheme()
	utilruntime.Must(extensionsv1beta1.AddToScheme(scheme)) // of what is compiled in
	metav1.AddToGroupVersion(scheme, metav1.Unversioned)
	of := rest.CopyConfig(config)
	version := extensionsv1beta1.GroupVersion
	of.GroupVersion, of.APIPath = &version, "/apis"
	of.ContentType, of.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	of.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	connection, err := rest.RESTClientFor(of)
	if err != nil {
		return client{}, fmt.Errorf("make a client: %w", err)
	}
	codec := runtime.NewParameterCodec(scheme)
	return client{
		claims: gentype.NewClientWithList(resourceClaims, rest.Interface(connection), codec, namespace,
			func() *extensionsv1beta1.SandboxClaim { return &extensionsv1beta1.SandboxClaim{} },
			func() *extensionsv1beta1.SandboxClaimList { return &extensionsv1beta1.SandboxClaimList{} }),
		pools: gentype.NewClientWithList(resourcePools, rest.Interface(connection), codec, namespace,
			func() *extensionsv1beta1.SandboxWarmPool { return &extensionsv1beta1.SandboxWarmPool{} },
			func() *extensionsv1beta1.SandboxWarmPoolList { return &extensionsv1beta1.SandboxWarmPoolList{} }),
		templates: gentype.NewClientWithList(resourceTemplates, rest.Interface(connection), codec, namespace,
			func() *extensionsv1beta1.SandboxTemplate { return &extensionsv1beta1.SandboxTemplate{} },
			func() *extensionsv1beta1.SandboxTemplateList { return &extensionsv1beta1.SandboxTemplateList{} }),
	}, nil
}
