// Reads manifests as the API server of Kubernetes does: strictly, with its defaults and its validation. Prints what each document is, and
// what is wrong with it. Kinds of others, such as OpenKruise's, are named and not judged.
package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/apps"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	appsvalidation "k8s.io/kubernetes/pkg/apis/apps/validation"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	corevalidation "k8s.io/kubernetes/pkg/apis/core/validation"
)

func main() {
	codecs := serializer.NewCodecFactory(legacyscheme.Scheme, serializer.EnableStrict)
	failed := false
	for _, path := range os.Args[1:] {
		text, err := os.ReadFile(path)
		if err != nil {
			panic(err)
		}
		documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
		for n := 1; ; n++ {
			document, err := documents.Read()
			if err == io.EOF {
				break
			}
			if err != nil {
				panic(err)
			}
			object, kind, err := codecs.UniversalDeserializer().Decode(document, nil, nil)
			if runtime.IsNotRegisteredError(err) {
				fmt.Printf("%s, document %d: of others: %v\n", path, n, err)
				continue
			}
			if err != nil {
				fmt.Printf("%s, document %d: %v\n", path, n, err)
				failed = true
				continue
			}
			legacyscheme.Scheme.Default(object)
			internal, err := legacyscheme.Scheme.ConvertToVersion(object, runtime.InternalGroupVersioner)
			if err != nil {
				panic(err)
			}
			for _, wrong := range validate(internal) {
				fmt.Printf("%s, document %d: %v\n", path, n, wrong)
				failed = true
			}
			fmt.Printf("%s: %s\n", path, kind)
		}
	}
	if failed {
		os.Exit(1)
	}
}

func validate(object runtime.Object) field.ErrorList {
	options := corevalidation.PodValidationOptions{}
	switch it := object.(type) {
	case *apps.DaemonSet:
		it.Namespace = "default"
		return appsvalidation.ValidateDaemonSet(it, options)
	case *apps.Deployment:
		it.Namespace = "default"
		return appsvalidation.ValidateDeployment(it, options)
	case *core.Pod:
		it.Namespace = "default"
		return corevalidation.ValidatePodCreate(it, options)
	case *core.ConfigMap:
		it.Namespace = "default"
		return corevalidation.ValidateConfigMap(it)
	case *core.Service:
		it.Namespace = "default"
		return corevalidation.ValidateServiceCreate(it)
	default:
		return field.ErrorList{field.InternalError(nil, fmt.Errorf("nothing here validates %T", object))}
	}
}
