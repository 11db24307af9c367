//! RepositoryIndex, RepositoryModelLoad, RepositoryModelUnload, ModelStatistics: same behavior as over HTTP

use super::messages::*;
use super::{Times, find};
use crate::app::App;
use crate::kserve::repository::{blocking, check_parameters};
use crate::refusal::Answer;
use crate::registry::Indexed;
use crate::served::Served;
use crate::statistics;
use std::sync::Arc;

pub async fn index(app: Arc<App>, request: RepositoryIndexRequest, _: Times) -> Answer<RepositoryIndexResponse> {
    let lines = blocking(app, |app| app.registry.index()).await?;
    let line = |line: Indexed| ModelIndex {
        state: line.state().into(),
        version: line.version.map(|version| version.to_string()).unwrap_or_default(),
        name: line.name,
        reason: line.failure.unwrap_or_default(),
    };
    let models = lines.into_iter().filter(|line| line.version.is_some() || !request.ready).map(line).collect();
    Ok(RepositoryIndexResponse { models })
}

pub async fn load(app: Arc<App>, request: RepositoryModelRequest, _: Times) -> Answer<RepositoryModelResponse> {
    app.check_accepting()?;
    check_parameters(request.parameters.keys())?;
    blocking(app, move |app| app.registry.load_model(&request.model_name)).await?;
    Ok(RepositoryModelResponse {})
}

pub async fn unload(app: Arc<App>, request: RepositoryModelRequest, _: Times) -> Answer<RepositoryModelResponse> {
    app.check_accepting()?;
    check_parameters(request.parameters.keys())?;
    blocking(app, move |app| app.registry.unload_model(&request.model_name)).await?;
    Ok(RepositoryModelResponse {})
}

pub async fn statistics(app: Arc<App>, request: ModelStatisticsRequest, _: Times) -> Answer<ModelStatisticsResponse> {
    let model_stats = match request.name.is_empty() {
        true => app.registry.models().values().map(|served| model_statistics(served)).collect(),
        false => vec![model_statistics(&*find(&app, &request.name, &request.version)?)],
    };
    Ok(ModelStatisticsResponse { model_stats })
}

fn model_statistics(served: &Served) -> ModelStatistics {
    let counts = served.statistics.counts();
    let batch = |(rows, times): (&usize, &statistics::Times)| InferBatchStatistics {
        batch_size: *rows as u64,
        compute_infer: duration(*times),
    };
    ModelStatistics {
        name: served.name.clone(),
        version: served.version.to_string(),
        last_inference: counts.last_millis(),
        inference_count: counts.rows,
        execution_count: counts.computed.count,
        inference_stats: Some(InferStatistics {
            success: duration(counts.succeeded),
            fail: duration(counts.failed),
            queue: duration(counts.waited),
            compute_input: duration(counts.decoded),
            compute_infer: duration(counts.computed),
            compute_output: duration(counts.encoded),
        }),
        batch_stats: counts.batches.iter().map(batch).collect(),
    }
}

fn duration(times: statistics::Times) -> Option<StatisticDuration> {
    Some(StatisticDuration { count: times.count, ns: times.ns() })
}
